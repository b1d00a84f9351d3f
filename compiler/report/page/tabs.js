// ── tabs.js: the parts of the panels that stand behind tabs: elements of class tab, whose names are their data-tab. ─────────────
// A tab that was chosen by hand stays when something else is selected, so that what it shows can be followed; the first one lets go again.

const tabbed = { parts: [], shown: null, stays: false };

// opening: the tab to begin with, while nothing is selected.
function tabs(opening) {
  tabbed.parts = [...document.querySelectorAll(".tab")];
  const list = make("div", { role: "tablist", id: "tabs", "aria-label": "What the panel shows" }), buttons = [];
  tabbed.parts.forEach((part, i) => {
    const button = make("button", { type: "button", role: "tab", id: part.id + "-tab", "aria-controls": part.id, click: () => chooseTab(part.id) }, part.dataset.tab);
    button.addEventListener("keydown", event => {
      const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: buttons.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const next = (to + buttons.length) % buttons.length;
      showTab(tabbed.parts[next].id, true);
      buttons[next].focus();
    });
    part.setAttribute("role", "tabpanel");
    part.setAttribute("aria-labelledby", button.id);
    buttons.push(button);
    list.append(button);
  });
  tabbed.parts[0].before(list);
  showTab(opening);
}

// A click on a tab brings up the sheet of a narrow window as well.
function chooseTab(id) {
  document.querySelector("aside").classList.add("sheet");
  showTab(id, true);
}
function letTabGo() { tabbed.stays = false; }

// byHand: somebody chose this tab; else one that was chosen stays.
function showTab(id, byHand) {
  if (byHand) tabbed.stays = id !== tabbed.parts[0].id;
  else if (tabbed.stays) return;
  tabbed.shown = id;
  for (const part of tabbed.parts) {
    part.hidden = part.id !== id;
    const button = $(part.id + "-tab");
    button.setAttribute("aria-selected", String(!part.hidden));
    button.tabIndex = part.hidden ? -1 : 0;
  }
  if (byHand) document.querySelector("aside").scrollTop = 0;
}
