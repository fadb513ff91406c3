/* Text as Pi's JavaScript treats it: decoding like a TextDecoder, cutting like Pi's truncate.js,
   numbers and sizes in its notation. Sizes in bytes of UTF-8. Pure functions, any thread. */
#ifndef HANDS_TEXT_H
#define HANDS_TEXT_H

#include "base/buf.h"
#include "base/json.h"

#define TEXT_MAX_LINES 2000
#define TEXT_MAX_BYTES ((size_t)50 * 1024)

/* UTF-8 that arrives in pieces. Zero-initialise. Invalid bytes become U+FFFD, one for each maximal
   part of a sequence (WHATWG), as in Node; a sequence cut by the end of a piece waits for the next
   one. */
struct text_decoder {
    unsigned char held[4];
    size_t held_n;
};
void text_decode(struct text_decoder *d, struct str bytes, struct buf *out);
void text_decode_end(struct text_decoder *d, struct buf *out);
/* Whole input at once. */
void text_decode_all(struct str bytes, struct buf *out);

#define TEXT_SIZE_MAX 32
const char *text_size(uint64_t bytes, char out[TEXT_SIZE_MAX]); /* 512B, 50.0KB, 1.5MB */
#define TEXT_NUMBER_MAX 40
const char *text_number(double value, char out[TEXT_NUMBER_MAX]); /* as JavaScript prints it */
/* Without the blanks and line ends around it, or behind it, as JavaScript's trim knows them. */
struct str text_trim(struct str s);
struct str text_trim_end(struct str s);
void text_lower(struct str s, struct buf *out); /* toLowerCase, but for its special cases */
/* As util.inspect shows a string: quoted, escaped, at most 128 characters and "...". */
void text_inspect(struct str s, struct buf *out);

enum text_cut {
    TEXT_CUT_NONE,
    TEXT_CUT_LINES,
    TEXT_CUT_BYTES
};

/* Pi's TruncationResult. */
struct text_truncation {
    struct str content; /* a part of the input */
    bool truncated;
    enum text_cut by;
    uint64_t total_lines, total_bytes;
    uint64_t output_lines, output_bytes;
    bool last_line_partial, first_line_exceeds;
    uint64_t max_lines;
};
struct text_truncation text_truncate_head(struct str text);
/* The cap on bytes only, for tools that count their lines themselves. */
struct text_truncation text_truncate_head_bytes(struct str text);
struct text_truncation text_truncate_tail(struct str text);
/* The object Pi puts into details.truncation. */
json_t *text_truncation_json(const struct text_truncation *t);

#endif
