/* multipart/form-data (RFC 7578), read in pieces as they come: nothing of a part's content is held
   back but what might be the beginning of a boundary. Strict: no preamble, headers of 8 KiB at
   most, no transfer encodings. Pure; one thread at a time; a fuzz target. */
#ifndef HTTP_MULTIPART_H
#define HTTP_MULTIPART_H

#include "base/err.h"
#include "base/str.h"

#define MULTIPART_HEADERS_MAX 8192 /* bytes of one part's headers */
#define MULTIPART_PARTS_MAX 32

struct multipart;

struct multipart_part {
    struct str name;         /* UTF-8, without control characters */
    struct str filename;     /* as sent, UTF-8; p NULL: not a file */
    struct str content_type; /* as sent; p NULL: none */
};

/* What is read, in order: part, data…, end, for each part. An error ends the reading and is what
   multipart_feed returns. Strings are good until the callback returns. */
struct multipart_sink {
    err (*part)(void *arg, const struct multipart_part *part);
    err (*data)(void *arg, struct str bytes);
    err (*end)(void *arg);
    void *arg;
};

/* content_type: the request's. E_MEDIA_TYPE when it is not multipart/form-data with a boundary. */
err multipart_new(struct str content_type, const struct multipart_sink *sink,
                  struct multipart **out);
void multipart_free(struct multipart *m); /* NULL-safe */
/* E_INVALID (invalid_multipart) when it is malformed. */
err multipart_feed(struct multipart *m, struct str bytes);
/* The body is over: E_INVALID unless the last boundary was seen. */
err multipart_end(struct multipart *m);

#endif
