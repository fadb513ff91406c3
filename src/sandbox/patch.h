/* A change that copyout.h told, as git's patches say it (`git apply` takes them). What a patch
   cannot carry (binary or large content, fifos) stands in it as a remark, which git passes over;
   folders come and go with their files. Pure; one thread. */
#ifndef SANDBOX_PATCH_H
#define SANDBOX_PATCH_H

#include "base/buf.h"
#include "sandbox/copyout.h"

#define PATCH_CONTENT_MAX (1u << 20) /* of one side of a file; larger ones become remarks */

/* before, after: the contents, where there is a file. `whole`: both are all of it. */
void patch_add(struct buf *out, const struct copyout_entry *e, struct str before, struct str after,
               bool whole);

#endif
