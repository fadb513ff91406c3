/* src/session/archive*.c: what is in the store after notes, and what comes back from it. */
#include "session/archive.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/tree.h"
#include "session/archive_inside.h"
#include "session/archive_row.h"
#include "session/backup.h"
#include "session/log.h"
#include "session/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "db_support.h"

#define TENANT "tenant_01MCC5RM008WXF1W76TSSHS283"
#define SESSION "sess_01MCC5RM008WXF1W76TSSHS283"
#define OTHER "sess_01MCC5RM008WXF1W76TSSHS284"
#define SEGMENT 4194304
#define GRACE_MS 60000

struct fixture {
    struct test_db at;
    char dir[64], logs[80], objects_dir[80];
    struct objects *o;
    struct archive *a;
};

static err add_session(struct db_conn *c, void *arg)
{
    struct session_row row = {.agent_id = "agent_1",
                              .environment_id = "env_1",
                              .agent_version = 1,
                              .agent_json = "{\"name\":\"a\"}",
                              .environment_json = "{}",
                              .title = "the title",
                              .metadata_json = "{\"k\":\"v\"}",
                              .vault_ids_json = "[]",
                              .status = "idle",
                              .created_at_ms = 1000,
                              .updated_at_ms = 2000,
                              .last_activity_ms = 3000};
    snprintf(row.tenant, sizeof row.tenant, TENANT);
    snprintf(row.id, sizeof row.id, "%s", (const char *)arg);
    return session_insert(c, &row);
}

static err add_tenant(struct db_conn *c, void *arg)
{
    (void)arg;
    return db_exec(c, "INSERT INTO tenants (id, name, created_at) VALUES ($1, 'the tenant', 77)",
                   DB_ARGS(DB_C(TENANT)), NULL);
}

static struct archive *new_archive(struct fixture *f)
{
    return archive_new(&(struct archive_options){.objects = f->o,
                                                 .db = f->at.db,
                                                 .clock = clock_real(),
                                                 .logs_dir = f->logs,
                                                 .scratch_dir = f->dir});
}

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    test_db_open(&f->at);
    snprintf(f->dir, sizeof f->dir, "/tmp/pm-archive-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->logs, sizeof f->logs, "%s/logs", f->dir);
    snprintf(f->objects_dir, sizeof f->objects_dir, "%s/objects", f->dir);
    assert_int_equal(mkdir(f->logs, 0700), 0);
    assert_int_equal(mkdir(f->objects_dir, 0700), 0);
    assert_int_equal(objects_open(f->objects_dir, &f->o), 0);
    assert_int_equal(db_write(f->at.db, add_tenant, NULL), 0);
    assert_int_equal(db_write(f->at.db, add_session, SESSION), 0);
    f->a = new_archive(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    archive_stop(f->a, GRACE_MS);
    archive_delete(f->a);
    objects_close(f->o);
    test_db_close(&f->at);
    assert_int_equal(tree_remove(f->dir), 0);
    mem_free(f);
    return 0;
}

/* Appends lines until the log has at least `bytes` more; returns its length. */
static int64_t write_log(struct fixture *f, const char *session, size_t bytes)
{
    struct session_log *log;
    AUTO_BUF line = {0};
    assert_int_equal(log_open(f->logs, TENANT, session, &log), 0);
    int64_t at = log_durable_bytes(log);
    for (size_t n = 0; n < bytes; n += line.n + 1) {
        buf_clear(&line);
        buf_printf(&line, "{\"at\":%lld,\"fill\":\"%0*d\"}", (long long)(at + (int64_t)n), 990, 0);
        log_append(log, buf_str(&line));
    }
    assert_int_equal(log_sync(log), 0);
    at = log_durable_bytes(log);
    log_close(log);
    return at;
}

static struct str file_of(struct fixture *f, const char *session, struct buf *out)
{
    AUTO_ARENA arena = arena_new();
    buf_clear(out);
    assert_int_equal(fd_read_file(log_path(f->logs, TENANT, session, arena), 64u << 20, out), 0);
    return buf_str(out);
}

static bool add_key(void *arg, const char *key, uint64_t size)
{
    buf_printf(arg, "%s=%llu\n", key, (unsigned long long)size);
    return true;
}

/* All keys with their sizes. */
static const char *keys(struct fixture *f, const char *prefix, struct buf *out)
{
    buf_clear(out);
    assert_int_equal(objects_list(f->o, prefix, add_key, out), 0);
    return out->n ? out->p : "";
}

/* The archive's thread works by itself, and says so when it has made a copy. */
static void wait_for_key(struct fixture *f, const char *prefix, const char *part)
{
    AUTO_BUF all = {0};
    int64_t deadline = clock_monotonic_ms(clock_real()) + GRACE_MS;
    AUTO_LOCK(&f->a->waiting_lock);
    while (strstr(keys(f, prefix, &all), part) == NULL) {
        int64_t left = deadline - clock_monotonic_ms(clock_real());
        assert_true(left > 0);
        cond_wait_ms(&f->a->changed, &f->a->waiting_lock, left);
    }
}

/* Starts the archive, and ends it when all that waits is copied. */
static void run_archive(struct fixture *f)
{
    archive_start(f->a);
    archive_stop(f->a, GRACE_MS);
    archive_delete(f->a);
    f->a = new_archive(f);
}

static void an_idle_session_is_copied_whole(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0}, want = {0};
    int64_t bytes = write_log(f, SESSION, 3000);
    archive_note(f->a, TENANT, SESSION, bytes, true);
    run_archive(f);
    buf_printf(&want, "logs/%s/%s/0000000000000000=%lld\n", TENANT, SESSION, (long long)bytes);
    assert_string_equal(keys(f, "logs/", &all), want.p);
    assert_non_null(strstr(keys(f, "sessions/", &all), SESSION ".json"));
    assert_non_null(strstr(keys(f, "system/", &all), "system/control.db"));
}

static void only_what_is_durable_is_copied(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0};
    int64_t first = write_log(f, SESSION, 1000);
    write_log(f, OTHER, 1000); /* has no row: left alone */
    archive_note(f->a, TENANT, SESSION, first, true);
    archive_start(f->a);
    archive_stop(f->a, GRACE_MS);
    char size[32];
    snprintf(size, sizeof size, "=%lld\n", (long long)first);
    assert_non_null(strstr(keys(f, "logs/", &all), size));
    assert_null(strstr(all.p, OTHER));
}

static void a_long_log_grows_by_its_last_segment(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0}, want = {0}, before = {0}, after = {0};
    struct stat one, two;
    char path[256];
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 2 * SEGMENT + 1000), true);
    run_archive(f);
    snprintf(path, sizeof path, "%s/logs/%s/%s/0000000000000000", f->objects_dir, TENANT, SESSION);
    assert_int_equal(stat(path, &one), 0);
    int64_t bytes = write_log(f, SESSION, SEGMENT);
    archive_note(f->a, TENANT, SESSION, bytes, true);
    run_archive(f);
    assert_int_equal(stat(path, &two), 0);
    assert_int_equal(one.st_ino, two.st_ino); /* not written again */
    for (int64_t at = 0; at < bytes; at += SEGMENT)
        buf_printf(&want, "logs/%s/%s/%016llx=%lld\n", TENANT, SESSION, (unsigned long long)at,
                   (long long)(bytes - at < SEGMENT ? bytes - at : SEGMENT));
    assert_string_equal(keys(f, "logs/", &all), want.p);

    struct str was = file_of(f, SESSION, &before);
    AUTO_ARENA arena = arena_new();
    assert_int_equal(unlink(log_path(f->logs, TENANT, SESSION, arena)), 0);
    assert_int_equal(archive_recover(f->a), 0);
    assert_true(str_eq(was, file_of(f, SESSION, &after)));
}

static void a_running_session_is_copied_in_time_not_at_once(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0};
    struct clock *clock = clock_fake_new(1000000);
    archive_delete(f->a);
    f->a = archive_new(&(struct archive_options){.objects = f->o,
                                                 .db = f->at.db,
                                                 .clock = clock,
                                                 .logs_dir = f->logs,
                                                 .scratch_dir = f->dir});
    assert_int_equal(db_write(f->at.db, add_session, OTHER), 0);
    archive_start(f->a);
    wait_for_key(f, "system/", "control.db"); /* the thread has looked at what was there */
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 100), false);
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 100), false);
    archive_note(f->a, TENANT, OTHER, write_log(f, OTHER, 100), true);
    wait_for_key(f, "sessions/", OTHER);
    assert_null(strstr(keys(f, "", &all), SESSION));
    clock_fake_advance_ms(clock, 30001);
    archive_note(f->a, TENANT, OTHER, write_log(f, OTHER, 100), true); /* to look at the clock */
    wait_for_key(f, "sessions/", SESSION);
    archive_stop(f->a, GRACE_MS);
    archive_delete(f->a);
    clock_fake_free(clock);
    f->a = new_archive(f);
}

static void what_a_previous_process_did_not_copy_is_found(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0};
    write_log(f, SESSION, 100);
    run_archive(f);
    assert_non_null(strstr(keys(f, "logs/", &all), SESSION));
}

static void a_purged_session_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0};
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 100), true);
    run_archive(f);
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 100), true);
    assert_int_equal(archive_purge(f->a, TENANT, SESSION), 0);
    run_archive(f);
    assert_string_equal(keys(f, "logs/", &all), "");
    assert_string_equal(keys(f, "sessions/", &all), "");
    assert_int_equal(archive_recover(f->a), 0);
    assert_string_equal(keys(f, "sessions/", &all), "");
}

static void a_gap_ends_what_comes_back(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF log = {0};
    char key[256];
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 2 * SEGMENT + 1000), true);
    run_archive(f);
    snprintf(key, sizeof key, "logs/%s/%s/%016x", TENANT, SESSION, SEGMENT);
    assert_int_equal(objects_delete(f->o, key), 0);
    AUTO_ARENA arena = arena_new();
    assert_int_equal(unlink(log_path(f->logs, TENANT, SESSION, arena)), 0);
    assert_int_equal(archive_recover(f->a), 0);
    struct str got = file_of(f, SESSION, &log);
    assert_true(got.n <= SEGMENT && got.n > SEGMENT - 2000);
    assert_int_equal(got.p[got.n - 1], '\n');
}

static void what_is_on_disk_is_not_touched(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF log = {0};
    char part[160];
    snprintf(part, sizeof part, "%s/" TENANT, f->logs);
    mkdir(part, 0700);
    snprintf(part, sizeof part, "%s/" TENANT "/" OTHER ".part", f->logs);
    assert_int_equal(fd_write_file_atomic(part, STR("half"), 0600), 0);
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 100), true);
    run_archive(f);
    int64_t bytes = write_log(f, SESSION, 100);
    assert_int_equal(archive_recover(f->a), 0);
    assert_int_equal(file_of(f, SESSION, &log).n, bytes);
    assert_int_not_equal(access(part, F_OK), 0); /* but for what a crash left half written */
}

static err read_title(struct db_conn *c, void *arg)
{
    AUTO_ARENA a = arena_new();
    struct session_row row;
    TRY(session_find(c, a, TENANT, str_of(SESSION), &row));
    snprintf(arg, 64, "%s %s %lld", row.title, row.status, (long long)row.usage.input_tokens);
    return 0;
}

static err change_row(struct db_conn *c, void *arg)
{
    (void)arg;
    struct session_usage usage = {.input_tokens = 5, .cost_usd = 0.5};
    return session_apply(c, TENANT, SESSION,
                         &(struct session_update){.status = "running", .usage = &usage}, 9000);
}

static void a_lost_database_comes_back_with_newer_rows_on_top(void **state)
{
    struct fixture *f = *state;
    char text[64], path[128], mark[128];
    bool restored = false;
    assert_int_equal(backup_take(f->at.db, f->o, f->dir), 0);
    assert_int_equal(db_write(f->at.db, change_row, NULL), 0);
    assert_int_equal(db_write(f->at.db, add_session, OTHER), 0);
    archive_note(f->a, TENANT, SESSION, write_log(f, SESSION, 100), true);
    archive_note(f->a, TENANT, OTHER, write_log(f, OTHER, 100), true);
    archive_start(f->a);
    wait_for_key(f, "sessions/", SESSION);
    wait_for_key(f, "sessions/", OTHER);
    archive_stop(f->a, 0);
    archive_delete(f->a);
    test_db_close(&f->at);
    test_db_open(&f->at); /* an empty one, of which nothing was copied */
    snprintf(path, sizeof path, "%s/control.db", f->dir);
    assert_int_equal(backup_restore(f->o, f->dir, &restored), 0);
    assert_true(restored);
    assert_int_equal(backup_restore(f->o, f->dir, &restored), 0);
    assert_false(restored); /* there is one now */
    snprintf(mark, sizeof mark, "%s/" BACKUP_RESTORED_MARK, f->logs);
    assert_int_equal(access(mark, F_OK), 0);
    f->a = new_archive(f);
    assert_int_equal(archive_recover(f->a), 0);
    assert_int_not_equal(access(mark, F_OK), 0);
    assert_int_equal(db_read(f->at.db, read_title, text), 0);
    assert_string_equal(text, "the title running 5");
}

static err old_copy(struct db_conn *c, void *arg)
{
    (void)arg;
    AUTO_ARENA a = arena_new();
    AUTO_JSON row = NULL;
    TRY(archive_row_read(c, TENANT, SESSION, &row));
    json_object_set_new(json_object_get(row, "session"), "title", json_string("older"));
    json_object_set_new(json_object_get(row, "session"), "updated_at", json_integer(1));
    return archive_row_write(c, a, row);
}

static void an_older_copy_does_not_replace_a_row(void **state)
{
    struct fixture *f = *state;
    char text[64];
    assert_int_equal(db_write(f->at.db, old_copy, NULL), 0);
    assert_int_equal(db_read(f->at.db, read_title, text), 0);
    assert_string_equal(text, "the title idle 0");
}

static err damaged_copy(struct db_conn *c, void *arg)
{
    AUTO_ARENA a = arena_new();
    AUTO_JSON row = NULL;
    TRY(archive_row_read(c, TENANT, SESSION, &row));
    json_t *session = json_object_get(row, "session");
    json_object_set_new(session, arg, json_string("{\"half\":"));
    json_object_set_new(session, "updated_at", json_integer(9000));
    return archive_row_write(c, a, row);
}

/* Else every list that shows it would be no JSON. */
static void a_damaged_copy_is_not_brought_back(void **state)
{
    struct fixture *f = *state;
    static char *const names[] = {"agent",     "environment", "metadata", "budget",
                                  "vault_ids", "stop_reason", "resources"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(db_write(f->at.db, damaged_copy, names[i]), E_INVALID);
        assert_non_null(strstr(err_text(), names[i]));
    }
    assert_int_equal(db_write(f->at.db, damaged_copy, "title"), 0);
}

static err compare_columns(struct db_conn *c, void *arg)
{
    struct buf *missing = arg;
    AUTO_JSON row = NULL;
    TRY(archive_row_read(c, TENANT, SESSION, &row));
    const json_t *session = json_object_get(row, "session");
    struct db_rows *r;
    TRY(db_query(c, "SELECT name FROM pragma_table_info('sessions')", DB_NO_ARGS, &r));
    while (db_next(r)) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_ARG(db_str(r, 0)));
        if (strcmp(name, "tenant_id") != 0 && !json_object_get(session, name))
            buf_printf(missing, "%s ", name);
    }
    return db_rows_done(r);
}

/* Whoever adds a column adds it to archive_row.c, too. */
static void every_column_of_a_session_is_copied(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF missing = {0};
    buf_add_c(&missing, "");
    assert_int_equal(db_read(f->at.db, compare_columns, &missing), 0);
    assert_string_equal(missing.n ? missing.p : "", "");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_idle_session_is_copied_whole),
        TEST(only_what_is_durable_is_copied),
        TEST(a_long_log_grows_by_its_last_segment),
        TEST(a_running_session_is_copied_in_time_not_at_once),
        TEST(what_a_previous_process_did_not_copy_is_found),
        TEST(a_purged_session_leaves_nothing),
        TEST(a_gap_ends_what_comes_back),
        TEST(what_is_on_disk_is_not_touched),
        TEST(a_lost_database_comes_back_with_newer_rows_on_top),
        TEST(an_older_copy_does_not_replace_a_row),
        TEST(a_damaged_copy_is_not_brought_back),
        TEST(every_column_of_a_session_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
