/* Reads a tar, compressed by gzip, zstd, xz or not at all, from a descriptor, once and in order:
   hands out its entries and afterwards the sha256 of the file and of the tar in it. Never runs a
   program, never seeks, holds no more than buffers in memory. Any thread. */
#ifndef IMAGES_STREAM_H
#define IMAGES_STREAM_H

#include "base/err.h"
#include "images/name.h"
#include "images/unpack.h"

struct stream_sums {
    uint64_t file_bytes;
    char file[IMAGE_DIGEST_MAX + 1], tar[IMAGE_DIGEST_MAX + 1];
};

/* Reads content of the current entry: *out_p is NULL at its end; a hole shows as a gap in the
   offsets. */
struct stream;
err stream_content(struct stream *s, const void **out_p, size_t *out_n, int64_t *out_offset);

/* The current entry with its content into an image. */
err stream_unpack(struct stream *s, struct unpack *u, const struct unpack_entry *entry);

/* `entry` is valid during the call; entry->path is never NULL. */
typedef err (*stream_fn)(void *arg, struct stream *s, const struct unpack_entry *entry);

/* max_tar_bytes bounds what is decompressed. Reads to the end of the file even when the tar ends
   earlier: the sums are of the whole. An error of fn names the entry afterwards. */
err stream_read(int fd, uint64_t max_tar_bytes, stream_fn fn, void *arg, struct stream_sums *out);
/* What a tar within these limits may have at most, headers and padding included. */
uint64_t stream_max_bytes(const struct image_limits *limits);

#endif
