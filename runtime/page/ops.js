// ── ops.js: predicted and actual time of the ops of a step, of programs whose trace was given. Knows the data and the document. ──

function opsPanel() {
  $("ops-section").hidden = !data.traces.length;
  $("ops").replaceChildren(...data.traces.map(trace => {
    const head = ["op", "predicted", "actual", "ratio", "events", "of the error"].map((text, i) => make("th", { scope: "col", ...(i ? {} : { class: "first" }) }, text));
    const rows = trace.ops.map(op => make("tr", {}, make("th", { scope: "row" }, named(op.name, op.name)), ...[
      ["predicted_us", op.predicted_us, secondsText(op.predicted_us * 1e-6)], ["actual_us", op.actual_us, secondsText(op.actual_us * 1e-6)],
      ["ratio", op.predicted_us > 1e-6 ? op.actual_us / op.predicted_us : null, op.predicted_us > 1e-6 ? "×" + (op.actual_us / op.predicted_us).toFixed(2) : "—"],
      ["events", op.events, numberText(op.events)], ["error", op.error, (100 * op.error).toFixed(1) + " %"],
    ].map(([key, value, text]) => make("td", { "data-op": key, "data-value": value === null ? "null" : value }, text))));
    return make("div", { class: "wide" }, make("h3", {}, trace.title), make("table", { class: "ops", "aria-label": "Ops of " + trace.title }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
  }));
}
