/* Lines of 80 columns: what goes on below, what stays whole, what is escaped.
 * Relies on: plan/lines.h, Criterion. Relied on by: make unit. */
#include "plan/lines.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char *text;
static size_t size;

static Lines begin(const char *label) {
    return lines_open(open_memstream(&text, &size), 4, label);
}

static const char *end(Lines *l) {
    lines_close(l);
    fclose(l->f);
    return text;
}

static void put(char *s, char c, int n) { /* n of the same */
    memset(s, c, (size_t)n);
    s[n] = 0;
}

Test(lines, words_go_on_below) {
    char wide[100], want[300];
    put(wide, 'a', 70);
    Lines l = begin("x");
    lines_words(&l, wide);
    lines_words(&l, "12345 6"); /* 4 + 70 + 1 + 5 columns are 80 */
    snprintf(want, sizeof want, "x   %s 12345\n    6\n", wide);
    cr_expect_str_eq(end(&l), want);
}

Test(lines, a_newline_begins_a_line_and_none_is_empty) {
    Lines l = begin("");
    lines_words(&l, "a\n\nb \n");
    lines_next(&l);
    lines_next(&l);
    lines_piece(&l, "c");
    lines_next(&l);
    cr_expect_str_eq(end(&l), "    a\n    b\n    c\n");
}

Test(lines, items_are_parted_and_stay_whole) {
    char wide[100], want[300];
    put(wide, 'b', 60);
    Lines l = begin("");
    lines_item(&l, wide);
    lines_item(&l, "two words of it"); /* has no room behind the first */
    lines_item(&l, "c");
    snprintf(want, sizeof want, "    %s ·\n    two words of it · c\n", wide);
    cr_expect_str_eq(end(&l), want);
}

Test(lines, characters_count_not_bytes) {
    char want[300] = "    ", many[300] = "";
    for (int i = 0; i < 74; i++) strcat(many, "é");
    Lines l = begin("");
    lines_piece(&l, many);
    lines_piece(&l, "z"); /* 4 + 74 + 1 + 1 columns */
    snprintf(want, sizeof want, "    %s z\n", many);
    cr_expect_str_eq(end(&l), want);
}

Test(lines, a_word_that_no_line_holds_is_not_cut) {
    char wide[200], want[300];
    put(wide, 'w', 120);
    Lines l = begin("");
    lines_words(&l, "a");
    lines_words(&l, wide);
    snprintf(want, sizeof want, "    a\n    %s\n", wide);
    cr_expect_str_eq(end(&l), want);
}

Test(lines, control_characters_are_escaped) {
    Lines l = begin("");
    lines_words(&l, "a\033[31m");
    cr_expect_str_eq(end(&l), "    a\\x1b[31m\n");
}

Test(lines, a_long_label_has_a_line_of_its_own) {
    Lines l = begin("é:  ");
    lines_words(&l, "a");
    cr_expect_str_eq(end(&l), "é:  a\n");
    l = begin("label");
    lines_words(&l, "a");
    cr_expect_str_eq(end(&l), "label\n    a\n");
}

Test(lines, blanks_part_pieces_and_no_line_begins_with_them) {
    char wide[100], want[300];
    put(wide, 'a', 70);
    Lines l = begin("");
    lines_words(&l, "a  b");
    lines_piece(&l, " c"); /* one blank beside the usual one */
    lines_next(&l);
    lines_words(&l, wide);
    lines_words(&l, "    ef");
    lines_piece(&l, "  g");
    snprintf(want, sizeof want, "    a  b  c\n    %s    ef\n    g\n", wide);
    cr_expect_str_eq(end(&l), want);
}

Test(lines, what_goes_on_below_stands_further_right) {
    Lines l = begin("");
    lines_hang(&l, 2);
    lines_words(&l, "a b\nc\nd");
    cr_expect_str_eq(end(&l), "    a b\n      c\n      d\n");
}
