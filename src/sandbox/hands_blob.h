/* The pi-hands program as it lies in our binary (hands_blob.S). */
#ifndef SANDBOX_HANDS_BLOB_H
#define SANDBOX_HANDS_BLOB_H

#include <stddef.h>
#include <stdint.h>

extern const unsigned char hands_blob_start[], hands_blob_end[];

static inline size_t hands_blob_size(void)
{
    return (size_t)((uintptr_t)hands_blob_end - (uintptr_t)hands_blob_start);
}

#endif
