/* Words for persons: text of agents, tools and files made harmless for a terminal, cut to a width,
   and numbers in units one likes to read. What goes to a program (a pipe, --json) stays as it is.
   Any thread. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>

/* Appends valid UTF-8 without what steers a terminal or turns lines around: control characters
   but LF and TAB, C1, bidirectional overrides become U+FFFD. */
void text_add_safe(struct buf *out, struct str s);
/* The same on one line, blanks for its ends, at most `columns` wide (then it ends with …); 0 = as
   long as it is. */
void text_add_line(struct buf *out, struct str s, size_t columns);
/* Columns that harmless one-line text takes on a terminal. */
size_t text_columns(struct str s);

/* "850 ms", "4.2 s", "3 min 5 s", "2 h 5 min" */
void text_add_ms(struct buf *out, int64_t ms);
/* "$0.0042"; "$1.25" from a dollar on */
void text_add_usd(struct buf *out, double usd);
/* "2026-11-30T18:03:12Z" of an R16 time. */
void text_add_time(struct buf *out, struct str time);

enum paint {
    PAINT_BOLD,
    PAINT_DIM,
    PAINT_RED,
    PAINT_GREEN,
    PAINT_YELLOW,
    PAINT_CYAN,
};
/* A terminal that shows colours, and nobody asked for none (NO_COLOR). */
bool text_has_colours(FILE *f);
/* Writes safe text, coloured if `f` shows colours. */
void text_paint(FILE *f, enum paint paint, const char *safe);

#endif
