/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c src/base/json_scan.c src/base/fd.c src/base/id.c */
/* sources: src/base/path.c src/sandbox/mounts.c src/sandbox/state.c */
/* The files of a sandbox's folder: whatever is accepted is within bounds (a pid that may be
   signalled, paths that end). */
#include "sandbox/state.h"

#include <stdlib.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct str text = {(const char *)data, n};
    struct sandbox_spec spec;
    if (state_parse_spec(text, &spec) == 0) {
        must(memchr(spec.id, 0, sizeof spec.id) && memchr(spec.tenant, 0, sizeof spec.tenant));
        must(memchr(spec.image, 0, sizeof spec.image));
        must(mounts_check(spec.mounts, spec.mount_count) == 0);
    }
    struct state_run run;
    if (state_parse_run(text, &run) == 0) {
        must(run.init.pid > 1 && run.started_at_ms >= 0);
        must(memchr(run.init.boot_id, 0, sizeof run.init.boot_id));
        must(memchr(run.limits_reason, 0, sizeof run.limits_reason));
        must(run.cgroup_count <= STATE_CGROUPS_MAX);
        for (unsigned i = 0; i < run.cgroup_count; i++)
            must(run.cgroups[i][0] == '/' && memchr(run.cgroups[i], 0, STATE_PATH_MAX));
    }
    return 0;
}
