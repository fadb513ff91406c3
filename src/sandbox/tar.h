/* Writes what copyout.h tells as a tar archive (POSIX pax): plain headers where they suffice, pax
   records for long names, sizes beyond 8 GiB and names that are not UTF-8. Pure; one thread. */
#ifndef SANDBOX_TAR_H
#define SANDBOX_TAR_H

#include "base/buf.h"
#include "sandbox/copyout.h"

/* The header of a file, folder or link; `size` bytes of content follow, then tar_add_padding. */
void tar_add_header(struct buf *out, struct str path, const struct copyout_node *node);
/* Fills the last block up. */
void tar_add_padding(struct buf *out, uint64_t size);
/* A remark that readers skip. */
void tar_add_comment(struct buf *out, struct str text);
void tar_add_end(struct buf *out);

#endif
