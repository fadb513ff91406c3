/* sources: src/hands/glob.c src/hands/process.c src/hands/text.c src/hands/collate.c */
/* sources: src/base/buf.c src/base/str.c src/base/mem.c src/base/json.c src/base/json_scan.c src/base/err.c src/base/arena.c */
/* sources: src/base/clock.c src/base/fd.c src/base/lock.c src/hands/threads.c */
/* runs: 800 */
/* A .gitignore of the agent's: any bytes end in rules, rules end in a verdict, and the verdict on a
   path does not depend on what was asked before. The first line is the path that is judged. */
#include "../../src/hands/ignore.c"

#include <stdint.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void read_from_memory(struct str text, struct rules *out)
{
    char path[64];
    AUTO_FD fd = memfd_create("ignore", MFD_CLOEXEC);
    must(fd >= 0 && write(fd, text.p, text.n) == (ssize_t)text.n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_rules(path, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = {(const char *)data, n};
    const char *end = n > 0 ? memchr(data, '\n', n) : NULL;
    size_t first = end ? (size_t)(end - text.p) : n;
    struct str path = {text.p, first};
    struct rules rules = {0}, again = {0};
    read_from_memory((struct str){text.p + first, n - first}, &rules);
    enum verdict file = judge(&rules, path, false), folder = judge(&rules, path, true);
    judge(&rules, STR("another/path"), false);
    must(judge(&rules, path, false) == file && judge(&rules, path, true) == folder);
    read_from_memory((struct str){text.p + first, n - first}, &again);
    must(again.n == rules.n && judge(&again, path, false) == file);
    must(rules.n > 0 || (file == NO_RULE && folder == NO_RULE));
    rules_done(&rules);
    rules_done(&again);
    return 0;
}
