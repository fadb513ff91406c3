/* sources: src/session/log.c src/session/log_index.c src/session/log_tree.c src/session/context.c */
/* sources: src/session/history.c src/session/projection.c src/session/messages.c src/session/fork.c */
/* sources: src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c src/base/err.c src/base/str.c src/base/arena.c */
/* sources: src/base/clock.c src/base/id.c src/base/fd.c src/base/lock.c */
/* runs: 150 */
/* Any bytes as a log file: opening keeps whole lines and nothing else, an append makes one more,
   and pages, entries, the context for a host, messages and a fork come out of it without harm. */
#include "session/log.h"
#include "base/fd.h"
#include "session/context.h"
#include "session/fork.h"
#include "session/history.h"
#include "session/messages.h"

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

static err keep_bytes(void *arg, struct str bytes)
{
    buf_add_str(arg, bytes);
    return 0;
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
    AUTO_BUF messages = {0};
    must(session_messages(dir, "t", "s", keep_bytes, &messages) == 0);
    must(json_read_log(buf_str(&messages), &rows) == 0 && json_is_array(rows));
    json_decref(rows);
}

/* Where it was forked is in out_entry (ID_MAX). */
static err fork_at(const char *from, const char *entry, const char *to, char *out_entry)
{
    const struct fork_request request = {.logs_dir = dir,
                                         .tenant = "t",
                                         .from = from,
                                         .entry = entry,
                                         .to = to,
                                         .now_ms = 1700000000000};
    struct fork *f;
    TRY(fork_open(&request, &f));
    snprintf(out_entry, ID_MAX, "%s", fork_entry(f));
    must(fork_write(f, "none") == 0);
    fork_close(f);
    return 0;
}

/* A fork fails with a reason, or can be forked again at the same place. */
static void check_fork(void)
{
    char at[ID_MAX], again[ID_MAX];
    err e = fork_at("s", NULL, "fork", at);
    must(e == 0 || e == E_CONFLICT);
    if (!e) {
        e = fork_at("fork", at, "again", again); /* ids that are there twice lead elsewhere */
        must(e ? e == E_CONFLICT || e == E_NOT_FOUND : strcmp(at, again) == 0);
    }
    must(log_remove(dir, "t", "fork") == 0 && log_remove(dir, "t", "again") == 0);
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
    check_fork();
    log_append(log, STR("{}"));
    must(log_sync(log) == 0);
    log_close(log);
    struct stat st;
    must(stat(path, &st) == 0 && st.st_size == (off_t)kept + 3);
    return 0;
}
