/* Which files are images a model can be shown, by their first bytes, as Pi decides it. Pure, any
 * thread. */
#ifndef HANDS_IMAGE_H
#define HANDS_IMAGE_H

#include "base/buf.h"
#include "base/str.h"

#define IMAGE_SNIFF_BYTES 4100

/* "image/png" and the like, or NULL. `head` is the first IMAGE_SNIFF_BYTES of the file, or all of
 * it. */
const char *image_mime_type(struct str head);
void image_base64(struct str bytes, struct buf *out);

#endif
