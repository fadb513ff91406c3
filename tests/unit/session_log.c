/* src/session/log.c: what is on disk after crashes, full disks and beside readers. */
#include "session/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TENANT "tenant_1"
#define SESSION "sess_1"

struct fixture {
    char dir[64], folder[128], path[256];
    struct session_log *log;
};

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/pm-log-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->folder, sizeof f->folder, "%s/" TENANT, f->dir);
    snprintf(f->path, sizeof f->path, "%s/" SESSION ".jsonl", f->folder);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    log_close(f->log);
    unlink(f->path);
    rmdir(f->folder);
    assert_int_equal(rmdir(f->dir), 0); /* nothing else was left behind */
    mem_free(f);
    return 0;
}

static void open_log(struct fixture *f)
{
    log_close(f->log);
    f->log = NULL;
    assert_int_equal(log_open(f->dir, TENANT, SESSION, &f->log), 0);
}

static bool add_line(void *arg, int64_t number, struct str line)
{
    struct buf *all = arg;
    buf_printf(all, "%lld:", (long long)number);
    buf_add_str(all, line);
    buf_add_char(all, '|');
    return true;
}

/* Every line with its number, each closed by a bar; in a static buffer. */
static const char *lines_of(struct fixture *f)
{
    static char text[4096];
    AUTO_BUF all = {0};
    assert_int_equal(log_read(f->dir, TENANT, SESSION, add_line, &all), 0);
    snprintf(text, sizeof text, "%s", all.p ? all.p : "");
    return text;
}

static void write_file(struct fixture *f, struct str content)
{
    assert_true(mkdir(f->folder, 0700) == 0 || errno == EEXIST);
    AUTO_FD fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_full(fd, content.p, content.n), 0);
}

static off_t file_size(struct fixture *f)
{
    struct stat st;
    return stat(f->path, &st) == 0 ? st.st_size : -1;
}

static void the_file_appears_with_its_first_line(void **state)
{
    struct fixture *f = *state;
    open_log(f);
    assert_true(log_is_empty(f->log));
    assert_int_equal(log_sync(f->log), 0);
    assert_int_equal(file_size(f), -1);
    assert_string_equal(lines_of(f), "");
    log_append(f->log, STR("one"));
    assert_false(log_is_empty(f->log));
    assert_int_equal(file_size(f), -1); /* not before the sync */
    assert_int_equal(log_sync(f->log), 0);
    assert_string_equal(lines_of(f), "0:one|");
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(f->folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void lines_come_back_as_they_were(void **state)
{
    struct fixture *f = *state;
    open_log(f);
    log_append(f->log, STR(""));
    log_append(f->log, STR("a\0b"));
    log_append(f->log, STR("\xff\xfe\r"));
    assert_int_equal(log_sync(f->log), 0);
    log_append(f->log, STR("later"));
    assert_int_equal(log_sync(f->log), 0);
    AUTO_BUF all = {0};
    assert_int_equal(log_read(f->dir, TENANT, SESSION, add_line, &all), 0);
    assert_true(str_eq(buf_str(&all), STR("0:|1:a\0b|2:\xff\xfe\r|3:later|")));
    open_log(f);
    log_append(f->log, STR("last"));
    assert_int_equal(log_sync(f->log), 0);
    buf_clear(&all);
    assert_int_equal(log_read(f->dir, TENANT, SESSION, add_line, &all), 0);
    assert_true(str_ends(buf_str(&all), STR("|4:last|")));
}

static bool stop_at_second(void *arg, int64_t number, struct str line)
{
    (void)line;
    *(int64_t *)arg = number;
    return number < 1;
}

static void a_reader_may_stop(void **state)
{
    struct fixture *f = *state;
    write_file(f, STR("a\nb\nc\n"));
    int64_t last = -1;
    assert_int_equal(log_read(f->dir, TENANT, SESSION, stop_at_second, &last), 0);
    assert_int_equal(last, 1);
}

static void a_torn_last_line_is_cut_wherever_it_tore(void **state)
{
    struct fixture *f = *state;
    const struct str whole = STR("{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n");
    for (size_t n = 0; n <= whole.n; n++) {
        write_file(f, (struct str){whole.p, n});
        size_t lines = n / 8;
        off_t kept = (off_t)(lines * 8);
        open_log(f);
        assert_int_equal(file_size(f), kept);
        assert_int_equal(log_is_empty(f->log), kept == 0);
        log_append(f->log, STR("new"));
        assert_int_equal(log_sync(f->log), 0);
        assert_int_equal(file_size(f), kept + 4);
        char last[16];
        snprintf(last, sizeof last, "%zu:new|", lines);
        assert_true(str_ends(str_of(lines_of(f)), str_of(last)));
    }
}

static void a_long_torn_line_is_cut(void **state)
{
    struct fixture *f = *state;
    static const size_t lengths[] = {1, 4095, 4096, 4097, 8192, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        AUTO_BUF b = {0};
        buf_add_c(&b, "first\n");
        for (size_t k = 0; k < lengths[i]; k++)
            buf_add_char(&b, 'x');
        write_file(f, buf_str(&b));
        open_log(f);
        assert_int_equal(file_size(f), 6);
        write_file(f, (struct str){b.p + 6, b.n - 6}); /* no line at all */
        open_log(f);
        assert_int_equal(file_size(f), 0);
        assert_true(log_is_empty(f->log));
    }
}

static void a_reader_does_not_see_a_torn_line(void **state)
{
    struct fixture *f = *state;
    write_file(f, STR("a\nb\nhalf"));
    assert_string_equal(lines_of(f), "0:a|1:b|");
}

/* In a child whose files cannot grow beyond 64 bytes. */
static int write_beyond_limit(struct fixture *f)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {64, 64};
    struct session_log *log = NULL;
    if (setrlimit(RLIMIT_FSIZE, &limit) || log_open(f->dir, TENANT, SESSION, &log))
        return 1;
    log_append(log, STR("a line of thirty characters ok"));
    if (log_sync(log))
        return 2;
    log_append(log, STR("a second one that fits in half"));
    log_append(log, STR("and a third that does not fit at all"));
    if (log_sync(log) != E_IO)
        return 3;
    log_append(log, STR("x"));
    if (log_sync(log) != E_IO) /* refused, although it would fit */
        return 4;
    log_close(log);
    return 0;
}

static void run_child(struct fixture *f, int (*fn)(struct fixture *f))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(f));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_failed_sync_leaves_nothing_half_written(void **state)
{
    struct fixture *f = *state;
    run_child(f, write_beyond_limit);
    assert_string_equal(lines_of(f), "0:a line of thirty characters ok|");
    assert_int_equal(file_size(f), 31);
    open_log(f); /* goes on once reopened */
    log_append(f->log, STR("again"));
    assert_int_equal(log_sync(f->log), 0);
    assert_string_equal(lines_of(f), "0:a line of thirty characters ok|1:again|");
}

static int first_write_beyond_limit(struct fixture *f)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {8, 8};
    struct session_log *log = NULL;
    if (setrlimit(RLIMIT_FSIZE, &limit) || log_open(f->dir, TENANT, SESSION, &log))
        return 1;
    log_append(log, STR("longer than eight"));
    if (log_sync(log) != E_IO)
        return 2;
    log_close(log);
    return 0;
}

static void a_failed_first_sync_leaves_an_empty_log(void **state)
{
    struct fixture *f = *state;
    run_child(f, first_write_beyond_limit);
    assert_string_equal(lines_of(f), "");
    open_log(f);
    assert_true(log_is_empty(f->log)); /* so the header is written again */
}

static void a_missing_logs_folder_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct session_log *log = NULL;
    assert_int_equal(log_open("/nowhere/at/all", TENANT, SESSION, &log), 0);
    log_append(log, STR("x"));
    assert_int_equal(log_sync(log), E_IO);
    log_close(log);
    (void)f;
}

static void a_link_is_not_followed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(mkdir(f->folder, 0700), 0);
    assert_int_equal(symlink("/etc/passwd", f->path), 0);
    struct session_log *log = NULL;
    assert_int_equal(log_open(f->dir, TENANT, SESSION, &log), E_IO);
    assert_null(log);
}

static void removing_twice_is_fine(void **state)
{
    struct fixture *f = *state;
    write_file(f, STR("a\n"));
    assert_int_equal(log_remove(f->dir, TENANT, SESSION), 0);
    assert_int_equal(log_remove(f->dir, TENANT, SESSION), 0);
    assert_string_equal(lines_of(f), "");
}

static void a_path_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    char *dir = mem_alloc(8000);
    memset(dir, 'd', 7999);
    struct session_log *log = NULL;
    int64_t n = 0;
    assert_int_equal(log_open(dir, TENANT, SESSION, &log), E_INVALID);
    assert_int_equal(log_read(dir, TENANT, SESSION, stop_at_second, &n), E_INVALID);
    assert_int_equal(log_remove(dir, TENANT, SESSION), E_INVALID);
    mem_free(dir);
}

/* ---- beside a writer ---- */

#define ROUNDS 400

struct beside {
    struct fixture *f;
    pthread_mutex_t state_lock; /* guards what follows */
    int64_t durable;            /* lines synced */
    bool done;
};

static size_t length_of(int64_t number)
{
    return 10 + (size_t)(number * 7919 % 5000);
}

static void *write_lines(void *arg)
{
    struct beside *b = arg;
    AUTO_BUF line = {0};
    int64_t number = 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 3; k++, number++) {
            buf_clear(&line);
            buf_printf(&line, "%08lld", (long long)number);
            while (line.n < length_of(number))
                buf_add_char(&line, (char)('a' + number % 26));
            log_append(b->f->log, buf_str(&line));
        }
        if (log_sync(b->f->log))
            abort();
        AUTO_LOCK(&b->state_lock);
        b->durable = number;
        b->done = i == ROUNDS - 1;
    }
    return NULL;
}

static bool check_line(void *arg, int64_t number, struct str line)
{
    int64_t *seen = arg;
    long long told = 0;
    if (number != *seen || line.n != length_of(number) || sscanf(line.p, "%8lld", &told) != 1 ||
        told != number || line.p[line.n - 1] != (char)('a' + number % 26))
        abort();
    ++*seen;
    return true;
}

static void *read_lines(void *arg)
{
    struct beside *b = arg;
    for (bool done = false; !done;) {
        pthread_mutex_lock(&b->state_lock);
        int64_t durable = b->durable;
        done = b->done;
        pthread_mutex_unlock(&b->state_lock);
        int64_t seen = 0;
        if (log_read(b->f->dir, TENANT, SESSION, check_line, &seen) || seen < durable)
            abort(); /* what was durable at the time of the call is seen */
    }
    return NULL;
}

static void readers_beside_a_writer_see_whole_lines(void **state)
{
    struct beside b = {.f = *state};
    pthread_mutex_init(&b.state_lock, NULL);
    open_log(b.f);
    pthread_t readers[2], writer = thread_start("writer", write_lines, &b);
    for (int i = 0; i < 2; i++)
        readers[i] = thread_start("reader", read_lines, &b);
    pthread_join(writer, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    int64_t seen = 0;
    assert_int_equal(log_read(b.f->dir, TENANT, SESSION, check_line, &seen), 0);
    assert_int_equal(seen, ROUNDS * 3);
    pthread_mutex_destroy(&b.state_lock);
}

static bool count_line(void *arg, int64_t number, struct str line)
{
    (void)line;
    *(int64_t *)arg = number + 1;
    return true;
}

/* An order of magnitude, for the day somebody makes it quadratic. */
static void fifty_thousand_lines_are_read_at_once(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0};
    for (int i = 0; i < 50000; i++)
        buf_printf(&all, "{\"type\":\"message\",\"id\":\"%08d\",\"text\":\"%0200d\"}\n", i, i);
    write_file(f, buf_str(&all));
    int64_t n = 0, before = clock_monotonic_ms(clock_real());
    assert_int_equal(log_read(f->dir, TENANT, SESSION, count_line, &n), 0);
    assert_int_equal(n, 50000);
    open_log(f);
    assert_in_range(clock_monotonic_ms(clock_real()) - before, 0, 3000);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_file_appears_with_its_first_line),
        TEST(lines_come_back_as_they_were),
        TEST(a_reader_may_stop),
        TEST(a_torn_last_line_is_cut_wherever_it_tore),
        TEST(a_long_torn_line_is_cut),
        TEST(a_reader_does_not_see_a_torn_line),
        TEST(a_failed_sync_leaves_nothing_half_written),
        TEST(a_failed_first_sync_leaves_an_empty_log),
        TEST(a_missing_logs_folder_is_an_error),
        TEST(a_link_is_not_followed),
        TEST(removing_twice_is_fine),
        TEST(a_path_beyond_the_limit_is_refused),
        TEST(readers_beside_a_writer_see_whole_lines),
        TEST(fifty_thousand_lines_are_read_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
