/* sources: src/base/str.c src/base/mem.c src/base/err.c src/base/buf.c src/base/fd.c */
/* sources: src/sandbox/ledger.c */
/* The list of promised memory: whatever it says, what is promised with it never exceeds what there
   is by its own count, and what is written reads back. */
#include "sandbox/ledger.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPACITY_MIB 1000

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool lives(const char *dir)
{
    return strstr(dir, "dead") == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char folder[] = "/tmp/pm-fuzz-ledger-XXXXXX";

static void remove_folder(void)
{
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool made;
    char path[64];
    if (!made) {
        must(mkdtemp(folder) != NULL);
        made = atexit(remove_folder) == 0;
    }
    snprintf(path, sizeof path, "%s/.memory", folder);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && fd_write_full(fd, data, n) == 0);
    const struct ledger l = {.folder = folder, .capacity_mib = CAPACITY_MIB, .lives = lives};
    if (ledger_check(&l, CAPACITY_MIB) == 0) { /* nothing is promised to anybody */
        must(ledger_reserve(&l, "sess_new", CAPACITY_MIB) == 0);
        must(ledger_check(&l, 1) == E_QUOTA);
        must(ledger_release(&l, "sess_new") == 0);
        must(ledger_check(&l, CAPACITY_MIB) == 0);
    }
    unlink(path);
    return 0;
}
