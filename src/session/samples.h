/* The last known measurements of sandboxes (§26.4), one each, for whoever wants them without asking
   the parent. Any thread. */
#ifndef SESSION_SAMPLES_H
#define SESSION_SAMPLES_H

#include "base/err.h"
#include "sandbox/provider.h"

struct samples;

struct sample {
    struct sandbox_status status;
    int64_t at_ms; /* wall clock */
};

struct samples *samples_new(void);
/* Replaces that sandbox's; a sandbox in state SANDBOX_NONE is forgotten. */
void samples_put(struct samples *s, const struct sandbox_status *status, int64_t now_ms);
void samples_forget(struct samples *s, const char *id);
/* Forgets what was not measured since: the sandbox is gone. */
void samples_forget_before(struct samples *s, int64_t at_ms);
/* The samples of one tenant, in no order; *out is the caller's to mem_free. */
size_t samples_of(struct samples *s, const char *tenant, struct sample **out);

#endif
