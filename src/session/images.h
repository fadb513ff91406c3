/* Images that must be made before a sandbox can be (§6.2, sandbox/bake.h): asks the parent once for
   all who need the same, and for no more than a few at a time, so that other sandboxes are not kept
   waiting. Any thread; calls block until it is there, which may take minutes. */
#ifndef SESSION_IMAGES_H
#define SESSION_IMAGES_H

#include "base/clock.h"
#include "base/err.h"
#include "parent/link.h"

struct images;

struct images *images_new(struct parent_link *parent, const struct clock *clock);
/* `packages`: canonical, "" for none. out_image: a name of the store. Those who waited for one that
   failed get its error; the next who asks tries again. */
err images_prepare(struct images *i, const char *tenant, const char *image, const char *packages,
                   char out_image[SANDBOX_IMAGE_MAX]);

#endif
