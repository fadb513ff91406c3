/* Memory promised to running sandboxes (R51): one starts only when its limit and those of all that
   run fit into what the operator gives them. Kept in one small file, DATA/sandboxes/.memory (lines
   "<id> <MiB>"), which the makers and commands of one data directory share; the folder is flocked
   while it changes. Whoever dies leaves his line: it is dropped when memory is short and the
   sandbox turns out not to run. Any process; nothing here waits for anything but that lock. */
#ifndef SANDBOX_LEDGER_H
#define SANDBOX_LEDGER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define LEDGER_NO_ROOM "host_capacity" /* the code word of E_QUOTA here */

struct ledger {
    const char *folder;    /* DATA/sandboxes */
    uint64_t capacity_mib; /* 0: nothing is counted */
    /* Whether the sandbox in this folder runs, or a verb that may start it is under way. */
    bool (*lives)(const char *dir);
};

/* Counts `id` with this much from now on, whatever it had before. E_QUOTA (LEDGER_NO_ROOM) when
   that does not fit. */
err ledger_reserve(const struct ledger *l, const char *id, uint32_t mib);
/* Idempotent. */
err ledger_release(const struct ledger *l, const char *id);
/* Would another sandbox fit now? As ledger_reserve, but reserves nothing. */
err ledger_check(const struct ledger *l, uint32_t mib);

/* What this machine can give to sandboxes, in MiB: its memory, or the service's own memory limit if
   that is less, but for an eighth. */
uint64_t ledger_default_capacity(void);

#endif
