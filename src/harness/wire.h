/* The bytes of the host protocol (protocol.h), without sockets: cuts what a host sends into
   messages, and builds what it is sent. One owner at a time. */
#ifndef HARNESS_WIRE_H
#define HARNESS_WIRE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

struct wire_reader {
    struct buf bytes;
    size_t at;        /* before this, all is taken */
    size_t scanned;   /* up to here there is no LF behind `at` */
    json_t *envelope; /* taken, but its line is not here yet */
};

/* Room for n more bytes, to be read at the returned place; then wire_added(). Lines handed out
   before are no longer valid. */
char *wire_space(struct wire_reader *r, size_t n);
void wire_added(struct wire_reader *r, size_t n);
/* Takes the next message: true with *out_envelope (a new reference) and *out_line (borrowed; n == 0
   if it has none). False when more bytes are needed, or with *out_err != 0 (E_INVALID) when this is
   not the protocol and the connection must end. A host sends at most one line with a message. */
bool wire_take(struct wire_reader *r, json_t **out_envelope, struct str *out_line, err *out_err);
void wire_done(struct wire_reader *r);

/* `envelope` and the lines behind it; each line ends with LF (a missing last one is added). Sets
 * "lines". */
void wire_build(json_t *envelope, struct str lines, struct buf *out);

#endif
