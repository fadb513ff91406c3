/* What a session says and does, for a person. The agent's answers go to standard output; everything
   else (tools, errors, notes, the sum at the end) to standard error, so that a pipe gets the answer
   alone. On a terminal answers and the output of tools appear as they grow: of a tool the first
   lines, then one line that changes. One thread. */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include "base/id.h"
#include "base/json.h"

struct screen {
    bool is_terminal;
    bool shows_output;       /* standard error is a terminal, too */
    const char *own_message; /* event id of what the person just said: not repeated. NULL: none */
    char started_id[ID_MAX]; /* of the answer whose beginning came over this connection */
    char open_id[ID_MAX];    /* of the answer that stands in the last line; "" if none */
    struct buf grown;        /* its text as shown so far */
    struct screen_output {
        char call[256];    /* toolCallId; "" if none */
        struct buf shown;  /* whole lines that stand there */
        struct buf line;   /* one that has not ended */
        int lines, hidden; /* how many stand there, and how many do not */
        bool ticking;      /* the last one of these is in the cursor's line */
    } output;              /* of the tool that is watched */
    int64_t requests, input_tokens, output_tokens, began_ms;
    double cost_usd;
    bool unpriced; /* some of it is of a model whose price is not known */
};

void screen_init(struct screen *s);
void screen_done(struct screen *s);
void screen_event(struct screen *s, const char *type, const json_t *event);
/* A line about the connection or ourselves. */
void screen_note(struct screen *s, const char *text);
/* The connection was lost: what grows of an answer now has no beginning here, so it is shown when
   it is whole. */
void screen_break(struct screen *s);
/* "bash ls -la": a tool call in a line. */
void screen_add_call(struct buf *out, const json_t *tool_use, size_t columns);

#endif
