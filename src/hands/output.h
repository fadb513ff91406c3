/* Output of a command while it grows (Pi's OutputAccumulator): counts everything, keeps a decoded
   tail for the model, and the whole in a file once it is longer than the model gets to see (R33).
   One thread. */
#ifndef HANDS_OUTPUT_H
#define HANDS_OUTPUT_H

#include "hands/text.h"

#define OUTPUT_FILE_MAX (64ull << 20) /* R33 */

struct output {
    struct text_decoder decoder;
    bool started;       /* the first bytes were looked at for a byte order mark */
    struct buf tail;    /* decoded */
    bool tail_cut_line; /* the tail begins inside a line */
    struct buf raw;     /* everything, until there is a file */
    uint64_t raw_bytes, bytes, complete_lines, open_line_bytes;
    bool open_line;
    int file;   /* -1: none */
    char *path; /* NULL: none needed, or it could not be made: then `trouble` says why */
    uint64_t file_bytes;
    char trouble[160];
};

void output_init(struct output *o);
void output_done(struct output *o);
void output_add(struct output *o, struct str bytes);
void output_end(struct output *o); /* no more will come; closes the file */
/* What Pi shows of it. t.content points into `o`. */
struct text_truncation output_snapshot(struct output *o);
/* "Full output: …" for a notice: the path, and what is missing there if anything is. */
void output_where(const struct output *o, struct buf *out);

#endif
