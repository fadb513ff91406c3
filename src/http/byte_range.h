/* The Range header (RFC 9110 §14): one range of bytes of something whose size is known. Pure. */
#ifndef HTTP_BYTE_RANGE_H
#define HTTP_BYTE_RANGE_H

#include "base/err.h"
#include "base/str.h"

struct byte_range {
    bool partial; /* false: all of it, because nothing (usable) was asked for */
    uint64_t from, length;
};

/* header: p NULL when there is none. What is malformed, in other units or several ranges at once
   is as if it were not there, as the RFC wants it. E_RANGE: nothing of the range is there. */
err byte_range_read(struct str header, uint64_t size, struct byte_range *out);

#endif
