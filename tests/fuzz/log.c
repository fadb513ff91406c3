/* sources: src/session/log.c src/session/log_index.c src/session/context.c src/session/history.c src/session/projection.c */
/* sources: src/base/json.c src/base/buf.c src/base/mem.c src/base/err.c src/base/str.c src/base/arena.c */
/* sources: src/base/clock.c src/base/id.c src/base/fd.c */
/* Any bytes as a log file: opening keeps whole lines and nothing else, an append makes one more,
   and pages, entries and the context for a host come out of it without harm. */
#include "session/log.h"
#include "base/fd.h"
#include "session/context.h"
#include "session/history.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[128];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void remove_all(void)
{
    char folder[80];
    snprintf(folder, sizeof folder, "%s/t", dir);
    unlink(path);
    rmdir(folder);
    rmdir(dir);
}

static void make_dir(void)
{
    char folder[80];
    snprintf(dir, sizeof dir, "/tmp/pm-fuzz-log-XXXXXX");
    must(mkdtemp(dir) != NULL);
    snprintf(folder, sizeof folder, "%s/t", dir);
    must(mkdir(folder, 0700) == 0);
    snprintf(path, sizeof path, "%s/s.jsonl", folder);
    atexit(remove_all);
}

struct reading {
    struct str rest; /* of what must come */
    int64_t lines;
};

static bool same_line(void *arg, int64_t number, struct str line)
{
    struct reading *r = arg;
    struct str expected;
    must(number == r->lines++);
    must(str_split(&r->rest, '\n', &expected) && str_eq(line, expected));
    return true;
}

static void check_pages(int64_t lines)
{
    AUTO_BUF context = {0};
    size_t count = 0;
    json_t *rows = NULL;
    struct history_query q = {.limit = 3};
    must(history_events(dir, "t", "s", &q, &rows) == 0 && json_array_size(rows) <= 3);
    json_decref(rows);
    q.ascending = q.has_after = true;
    must(history_entries(dir, "t", "s", &q, &rows) == 0);
    must((int64_t)json_array_size(rows) == (lines < 3 ? lines : 3));
    json_decref(rows);
    must(context_lines(dir, "t", "s", &context, &count) == 0 && (int64_t)count <= lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (dir[0] == 0)
        make_dir();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && fd_write_full(fd, data, n) == 0);
    close(fd);
    size_t kept = n;
    while (kept > 0 && data[kept - 1] != '\n')
        kept--;
    struct session_log *log = NULL;
    must(log_open(dir, "t", "s", &log) == 0 && log_is_empty(log) == (kept == 0));
    struct reading r = {.rest = {(const char *)data, kept}};
    must(log_read(dir, "t", "s", same_line, &r) == 0);
    check_pages(r.lines);
    log_append(log, STR("{}"));
    must(log_sync(log) == 0);
    log_close(log);
    struct stat st;
    must(stat(path, &st) == 0 && st.st_size == (off_t)kept + 3);
    return 0;
}
