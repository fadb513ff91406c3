#include "sandbox/linux/limits.h"

#include "base/buf.h"
#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/disk.h"
#include "sandbox/linux/userns.h"

#include <stdio.h>
#include <unistd.h>

err limits_settle(const struct sandbox_spec *spec, const struct sandbox_place *place,
                  unsigned missing, bool disk_missing, struct state_run *run)
{
    AUTO_BUF names = {0}, asked = {0};
    const struct {
        bool missing, asked;
        const char *name;
    } limits[] = {
        {missing & CGROUP_NO_MEMORY, spec->memory_mib > 0, "memory"},
        {missing & CGROUP_NO_PIDS, spec->pids > 0, "processes"},
        {missing & CGROUP_NO_CPU, spec->cpu_milli > 0, "cpu"},
        {disk_missing, true, "disk"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i].missing)
            buf_printf(&names, " %s", limits[i].name);
        if (limits[i].missing && limits[i].asked)
            buf_printf(&asked, " %s", limits[i].name);
    }
    run->limits_enforced = names.n == 0;
    run->limits_reason[0] = 0;
    if (names.n > 0)
        snprintf(run->limits_reason, sizeof run->limits_reason,
                 "nothing limits:%s; run the service as root, or for all but disk with a delegated "
                 "cgroup (systemd: Delegate=yes)",
                 names.p);
    if (asked.n > 0 && !place->allow_unenforced)
        return fail_as(E_INVALID, "limits_not_enforced",
                       "nothing can limit this here:%s. Leave the limit out, run the service as "
                       "root, or allow it with --allow-unenforced-limits",
                       asked.p);
    return 0;
}

err limits_prepare_disk(const struct sandbox_spec *spec, const struct sandbox_place *place,
                        const char *disk, bool *out_on_disk)
{
    *out_on_disk = access(disk, F_OK) == 0;
    if (spec->disk_mib == 0 || *out_on_disk)
        return 0;
    err e = userns_is_privileged() ? disk_probe() : fail(E_UNAVAILABLE, "it needs root");
    if (e && place->allow_unenforced)
        return 0;
    if (e)
        return fail_as(E_INVALID, "limits_not_enforced",
                       "disk space cannot be limited here: %s. Leave the limit out, or allow it "
                       "with --allow-unenforced-limits",
                       err_text());
    *out_on_disk = true;
    return disk_make(disk, spec->disk_mib);
}
