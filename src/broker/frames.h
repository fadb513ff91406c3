/* Framing of the broker protocol (protocol.h): u32 little-endian length, then one JSON object. Both
   ends use this. Reading and writing block; broker_frame_parse is the part that judges what came
   and does no I/O. */
#ifndef BROKER_FRAMES_H
#define BROKER_FRAMES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define FRAME_HEADER_BYTES 4

/* Appends the frame of `message`. E_TOO_LARGE beyond BROKER_FRAME_MAX; nothing is appended then. */
err broker_frame_encode(const json_t *message, struct buf *out);
/* Looks for one whole frame at the start of `bytes`. *out_used is 0 and *out NULL while more bytes
   are needed. E_INVALID for a frame that can never be right: the connection is of no use any more.
 */
err broker_frame_parse(struct str bytes, size_t *out_used, json_t **out);

/* Reads one message. `scratch` keeps its memory between calls. E_CLOSED when the peer is gone. */
err broker_frame_read(int fd, struct buf *scratch, json_t **out);
/* Writes one message. The caller keeps others from writing meanwhile. */
err broker_frame_write(int fd, const json_t *message);

#endif
