/* sources: src/session/log_import.c src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c src/base/err.c src/base/str.c */
/* sources: src/base/arena.c src/base/clock.c src/base/fd.c src/base/lock.c src/base/tree.c src/base/id.c */
/* Any bytes as a log, whole and in pieces: the same verdict, the same file; what is taken has a
   header of ours and only JSON objects below it. */
#include "session/log_import.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char dir[] = "/tmp/pm-fuzz-import-XXXXXX";

static void clean(void)
{
    tree_remove(dir);
}

static bool import(const char *session, const char *data, size_t n, size_t step, struct buf *out)
{
    struct log_import *i;
    int64_t bytes = 0;
    char path[128];
    assert(log_import_begin(dir, "t", session, &i) == 0);
    for (size_t at = 0; at < n; at += step) {
        if (log_import_feed(i, (struct str){data + at, n - at < step ? n - at : step})) {
            log_import_abort(i);
            return false;
        }
    }
    if (log_import_finish(i, &bytes))
        return false;
    snprintf(path, sizeof path, "%s/t/%s.jsonl", dir, session);
    assert(fd_read_file(path, 1u << 24, out) == 0 && (size_t)bytes == out->n);
    unlink(path);
    return true;
}

static void check(struct str log)
{
    struct str line;
    assert(log.n > 0 && log.p[log.n - 1] == '\n');
    for (int at = 0; log.n > 0 && str_split(&log, '\n', &line); at++) {
        AUTO_JSON j = NULL;
        assert(json_read_log(line, &j) == 0 && json_is_object(j));
        assert((strcmp(json_get_c(j, "type"), "session") == 0) == (at == 0));
        assert(at > 0 || strcmp(json_get_c(j, "cwd"), "/workspace") == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool made;
    if (!made) {
        made = mkdtemp(dir) != NULL;
        assert(made);
        atexit(clean);
    }
    if (n < 1)
        return 0;
    AUTO_BUF whole = {0};
    AUTO_BUF pieces = {0};
    size_t step = data[0] ? data[0] : 1;
    bool one = import("s", (const char *)data + 1, n - 1, n, &whole);
    bool many = import("s", (const char *)data + 1, n - 1, step, &pieces);
    assert(one == many);
    assert(str_eq(buf_str(&whole), buf_str(&pieces)));
    if (one)
        check(buf_str(&whole));
    return 0;
}
