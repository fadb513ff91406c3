/* src/db: the embedded engine. Includes the engine to reach its writer connection. */
#include "../../src/db/sqlite.c"
#include "../../src/db/sqlite_conn.c"

#include "base/arena.h"
#include "db/migrations.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#include "db_support.h"

static const char sql_insert[] = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3)";
static const char sql_count[] = "SELECT COUNT(*) FROM tenants";
static const char sql_name[] = "SELECT name FROM tenants WHERE id = $1";

struct row {
    const char *id;
    struct str name;
    err then; /* what the write returns after its insert */
};

static err insert_row(struct db_conn *c, void *arg)
{
    const struct row *r = arg;
    TRY(db_exec(c, sql_insert, DB_ARGS(DB_C(r->id), DB_S(r->name), DB_I(1)), NULL));
    return r->then ? fail(r->then, "asked to fail") : 0;
}

static err insert(struct db *db, const char *id, const char *name)
{
    struct row r = {id, str_of(name), 0};
    return db_write(db, insert_row, &r);
}

static err read_count(struct db_conn *c, void *arg)
{
    struct db_rows *r;
    TRY(db_query(c, sql_count, DB_NO_ARGS, &r));
    *(int64_t *)arg = db_next(r) ? db_int(r, 0) : -1;
    return db_rows_done(r);
}

static int64_t count(struct db *db)
{
    int64_t n = -2;
    assert_int_equal(db_read(db, read_count, &n), 0);
    return n;
}

/* Holds the writer inside a write until told to go on, so that what is queued meanwhile is one
 * group. */
struct gate {
    pthread_mutex_t m;
    pthread_cond_t c;
    unsigned entered;
    bool open;
};

static void wait_until_entered(struct gate *g, unsigned n)
{
    AUTO_LOCK(&g->m);
    while (g->entered < n)
        cond_wait_ms(&g->c, &g->m, 1000);
}

static void open_gate(struct gate *g)
{
    AUTO_LOCK(&g->m);
    g->open = true;
    pthread_cond_broadcast(&g->c);
}

static err wait_at_gate(struct db_conn *c, void *arg)
{
    (void)c;
    struct gate *g = arg;
    AUTO_LOCK(&g->m);
    g->entered++;
    pthread_cond_broadcast(&g->c);
    while (!g->open)
        cond_wait_ms(&g->c, &g->m, 1000);
    return 0;
}

struct worker {
    struct db *db;
    struct gate *gate; /* this worker is the one that waits */
    struct row row;
    err result;
    struct err_slot slot;
    pthread_t thread;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    w->result =
        w->gate ? db_write(w->db, wait_at_gate, w->gate) : db_write(w->db, insert_row, &w->row);
    err_save(&w->slot);
    return NULL;
}

static size_t queued(struct db *db)
{
    struct sqlite_db *s = self(db);
    AUTO_LOCK(&s->queue_lock);
    size_t n = 0;
    for (struct write *w = s->first; w; w = w->next)
        n++;
    return n;
}

#define GROUP 20

/* Runs GROUP writes that are certain to be committed together. */
static void run_together(struct db *db, struct worker workers[GROUP])
{
    struct gate gate = {.m = PTHREAD_MUTEX_INITIALIZER};
    cond_init(&gate.c);
    struct worker first = {.db = db, .gate = &gate};
    first.thread = thread_start("first", work, &first);
    wait_until_entered(&gate, 1);
    for (size_t i = 0; i < GROUP; i++) {
        workers[i].db = db;
        workers[i].thread = thread_start("worker", work, &workers[i]);
    }
    while (queued(db) < GROUP)
        sched_yield();
    open_gate(&gate);
    pthread_join(first.thread, NULL);
    for (size_t i = 0; i < GROUP; i++)
        pthread_join(workers[i].thread, NULL);
}

static char names[GROUP][16];

static void fill(struct worker workers[GROUP])
{
    for (size_t i = 0; i < GROUP; i++) {
        snprintf(names[i], sizeof names[i], "w%zu", i);
        workers[i] = (struct worker){.row = {names[i], str_of(names[i]), 0}};
    }
}

static int count_commit(void *arg)
{
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void waiting_writes_are_committed_as_one_group(void **state)
{
    struct test_db *f = *state;
    int commits = 0;
    sqlite3_commit_hook(self(f->db)->writer->sqlite, count_commit, &commits);
    struct db_stats before, after;
    db_get_stats(f->db, &before);
    struct worker workers[GROUP];
    fill(workers);
    run_together(f->db, workers);
    db_get_stats(f->db, &after);
    sqlite3_commit_hook(self(f->db)->writer->sqlite, NULL, NULL);

    for (size_t i = 0; i < GROUP; i++)
        assert_int_equal(workers[i].result, 0);
    assert_int_equal(count(f->db), GROUP);
    assert_int_equal(after.writes - before.writes, GROUP + 1);
    assert_int_equal(after.groups - before.groups, 2);
    assert_true(commits >= 1 && commits <= 2); /* the one at the gate wrote nothing */
}

static void a_failing_write_rolls_back_only_itself(void **state)
{
    struct test_db *f = *state;
    struct worker workers[GROUP];
    fill(workers);
    workers[7].row.then = E_FORBIDDEN;
    workers[9].row.name = str_of("w8"); /* its name is taken by its neighbour, or the reverse */
    run_together(f->db, workers);
    assert_int_equal(workers[7].result, E_FORBIDDEN);
    assert_string_equal(workers[7].slot.text, "asked to fail");
    assert_int_equal(workers[8].result + workers[9].result, E_CONFLICT);
    for (size_t i = 0; i < GROUP; i++)
        if (i < 7 || i > 9)
            assert_int_equal(workers[i].result, 0);
    assert_int_equal(count(f->db), GROUP - 2);
}

static int refuse_commit(void *arg)
{
    (void)arg;
    return 1;
}

static void a_failed_commit_fails_every_write_of_the_group(void **state)
{
    struct test_db *f = *state;
    struct worker workers[GROUP];
    fill(workers);
    workers[3].row.then = E_FORBIDDEN; /* keeps its own error */
    sqlite3_commit_hook(self(f->db)->writer->sqlite, refuse_commit, NULL);
    run_together(f->db, workers);
    sqlite3_commit_hook(self(f->db)->writer->sqlite, NULL, NULL);
    for (size_t i = 0; i < GROUP; i++)
        assert_int_equal(workers[i].result, i == 3 ? E_FORBIDDEN : E_INTERNAL);
    assert_int_equal(count(f->db), 0);
    assert_int_equal(insert(f->db, "t", "works again"), 0);
}

static err limit_pages(struct db_conn *c, void *arg)
{
    (void)arg;
    return run_script(conn_of(c), "PRAGMA max_page_count = 1");
}

static void a_full_disk_is_an_error_and_not_a_loss(void **state)
{
    struct test_db *f = *state;
    assert_int_equal(insert(f->db, "before", "before"), 0);
    assert_int_equal(db_write(f->db, limit_pages, NULL), 0); /* becomes the present size */
    AUTO_BUF big = {0};
    buf_reserve(&big, (1024 * 1024));
    for (size_t i = 0; i < (1024 * 1024); i++)
        buf_add_char(&big, 'x');
    struct row r = {"big", buf_str(&big), 0};
    assert_int_equal(db_write(f->db, insert_row, &r), E_UNAVAILABLE);
    assert_int_equal(count(f->db), 1);
    sqlite3_exec(self(f->db)->writer->sqlite, "PRAGMA max_page_count = 1000000", NULL, NULL, NULL);
    assert_int_equal(db_write(f->db, insert_row, &r), 0);
    assert_int_equal(count(f->db), 2);
}

static void a_unique_violation_is_a_conflict(void **state)
{
    struct test_db *f = *state;
    assert_int_equal(insert(f->db, "a", "same"), 0);
    assert_int_equal(insert(f->db, "b", "same"), E_CONFLICT);
    assert_int_equal(insert(f->db, "a", "other"), E_CONFLICT);
    assert_int_equal(count(f->db), 1);
}

static err read_name(struct db_conn *c, void *arg)
{
    struct db_rows *r;
    TRY(db_query(c, sql_name, DB_ARGS(DB_C("t")), &r));
    if (db_next(r)) {
        struct str s = db_str(r, 0);
        buf_add(arg, s.p, s.n);
    }
    return db_rows_done(r);
}

static void text_with_nul_comes_back_whole(void **state)
{
    struct test_db *f = *state;
    struct row r = {"t", STR("a\0b\0"), 0};
    assert_int_equal(db_write(f->db, insert_row, &r), 0);
    AUTO_BUF got = {0};
    assert_int_equal(db_read(f->db, read_name, &got), 0);
    assert_int_equal(got.n, 4);
    assert_memory_equal(got.p, "a\0b\0", 4);
}

static err kinds(struct db_conn *c, void *arg)
{
    (void)arg;
    struct db_rows *r;
    TRY(db_query(c, "SELECT $3, $1, $2, $4, $5", /* numbers, not order of appearance */
                 DB_ARGS(DB_I(INT64_MIN), DB_R(0.5), DB_C(NULL), DB_B(STR("\0\xff")), DB_C("")),
                 &r));
    assert_true(db_next(r));
    assert_true(db_is_null(r, 0));
    assert_true(db_int(r, 1) == INT64_MIN);
    assert_true(db_real(r, 2) == 0.5);
    assert_true(str_eq(db_str(r, 3), STR("\0\xff")));
    assert_false(db_is_null(r, 4));
    AUTO_ARENA a = arena_new();
    assert_null(db_text(r, 0, a));
    assert_string_equal(db_text(r, 4, a), "");
    assert_false(db_next(r));
    return db_rows_done(r);
}

static void every_kind_of_value_survives(void **state)
{
    struct test_db *f = *state;
    assert_int_equal(db_read(f->db, kinds, NULL), 0);
}

static err same_statement_twice(struct db_conn *c, void *arg)
{
    (void)arg;
    struct db_rows *outer, *inner;
    TRY(db_query(c, "SELECT id FROM tenants ORDER BY id", DB_NO_ARGS, &outer));
    int pairs = 0;
    while (db_next(outer)) {
        TRY(db_query(c, "SELECT id FROM tenants ORDER BY id", DB_NO_ARGS, &inner));
        while (db_next(inner))
            pairs++;
        TRY(db_rows_done(inner));
    }
    assert_int_equal(pairs, 4);
    return db_rows_done(outer);
}

static void one_statement_can_be_open_twice(void **state)
{
    struct test_db *f = *state;
    assert_int_equal(insert(f->db, "a", "a"), 0);
    assert_int_equal(insert(f->db, "b", "b"), 0);
    assert_int_equal(db_read(f->db, same_statement_twice, NULL), 0);
}

static err many_statements(struct db_conn *c, void *arg)
{
    (void)arg;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3 * SQLITE_STATEMENTS_MAX; i++) {
            char sql[32];
            snprintf(sql, sizeof sql, "SELECT %d", i);
            struct db_rows *r;
            TRY(db_query(c, sql, DB_NO_ARGS, &r));
            assert_true(db_next(r));
            assert_int_equal(db_int(r, 0), i);
            TRY(db_rows_done(r));
        }
    assert_int_equal(conn_of(c)->statement_count, SQLITE_STATEMENTS_MAX);
    return 0;
}

static void the_statement_cache_is_bounded(void **state)
{
    struct test_db *f = *state;
    assert_int_equal(db_read(f->db, many_statements, NULL), 0);
}

static err bad_sql(struct db_conn *c, void *arg)
{
    return db_exec(c, arg, DB_ARGS(DB_I(1)), NULL);
}

static void mistakes_in_sql_are_internal_errors(void **state)
{
    struct test_db *f = *state;
    static const char *const table[] = {
        "SELEC $1",
        "SELECT 1",            /* a parameter too many */
        "SELECT $1, $2",       /* one too few */
        "SELECT $2",           /* misnumbered */
        "SELECT $1; SELECT 2", /* two statements */
        "",
        "INSERT INTO api_keys (tenant_id, id, lookup, name, scope, hash, last4, created_at) "
        "VALUES ('none', $1, 'x', 'x', 'x', 'x', 'x', 1)", /* foreign key */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_int_equal(db_write(f->db, bad_sql, (void *)table[i]), E_INTERNAL);
    assert_int_equal(insert(f->db, "t", "still works"), 0);
}

static err write_in_read(struct db_conn *c, void *arg)
{
    return insert_row(c, arg);
}

static void a_read_cannot_write(void **state)
{
    struct test_db *f = *state;
    struct row r = {"t", STR("t"), 0};
    assert_int_not_equal(db_read(f->db, write_in_read, &r), 0);
    assert_int_equal(count(f->db), 0);
}

static void *hammer(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < 50; i++) {
        char id[32];
        snprintf(id, sizeof id, "%s-%d", w->row.id, i);
        assert_int_equal(insert(w->db, id, id), 0);
        assert_true(count(w->db) > i);
    }
    return NULL;
}

static void *read_at_gate(void *arg)
{
    struct worker *w = arg;
    w->result = db_read(w->db, wait_at_gate, w->gate);
    return NULL;
}

static void it_reads_now_while_an_open_connection_is_free(void **state)
{
    struct db *db = ((struct test_db *)*state)->db;
    struct gate gate = {.m = PTHREAD_MUTEX_INITIALIZER};
    struct worker readers[READERS_MAX];
    cond_init(&gate.c);
    assert_int_equal(count(db), 0);
    assert_true(db_reads_now(db));
    for (unsigned i = 0; i < READERS_MAX; i++) {
        readers[i] = (struct worker){.db = db, .gate = &gate};
        readers[i].thread = thread_start("reader", read_at_gate, &readers[i]);
        wait_until_entered(&gate, i + 1);
        assert_false(db_reads_now(db));
    }
    open_gate(&gate);
    for (size_t i = 0; i < READERS_MAX; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].result, 0);
    }
    assert_true(db_reads_now(db));
}

static void many_threads_read_and_write_at_once(void **state)
{
    struct test_db *f = *state;
    struct worker workers[GROUP];
    fill(workers);
    for (size_t i = 0; i < GROUP; i++) {
        workers[i].db = f->db;
        workers[i].thread = thread_start("hammer", hammer, &workers[i]);
    }
    for (size_t i = 0; i < GROUP; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(count(f->db), GROUP * 50);
    struct db_stats stats;
    db_get_stats(f->db, &stats);
    assert_true(stats.groups < stats.writes);
}

/* Two rows in each write, named in pairs; a kill between them must never leave half a pair. */
static err insert_pair(struct db_conn *c, void *arg)
{
    int i = *(int *)arg;
    char id[32];
    for (int half = 0; half < 2; half++) {
        snprintf(id, sizeof id, "%d-%d", i, half);
        TRY(db_exec(c, sql_insert, DB_ARGS(DB_C(id), DB_C(id), DB_I(i)), NULL));
    }
    return 0;
}

static err read_halves(struct db_conn *c, void *arg)
{
    struct db_rows *r;
    TRY(db_query(c,
                 "SELECT COUNT(*) FROM (SELECT created_at FROM tenants GROUP BY created_at "
                 "HAVING COUNT(*) <> 2)",
                 DB_NO_ARGS, &r));
    *(int64_t *)arg = db_next(r) ? db_int(r, 0) : -1;
    return db_rows_done(r);
}

static void write_pairs_forever(const char *url, int report)
{
    struct db *db;
    if (db_open(url, &db) != 0)
        _exit(1);
    for (int i = 0;; i++) {
        if (db_write(db, insert_pair, &i) != 0)
            _exit(2);
        if (write(report, &i, sizeof i) != sizeof i)
            _exit(3);
    }
}

static void kill_9_leaves_whole_transactions_and_all_that_were_reported(void **state)
{
    struct test_db *f = *state;
    db_close(f->db);
    for (int round = 0; round < 5; round++) {
        char path[128];
        snprintf(path, sizeof path, "%s/control.db", f->dir);
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0)
            write_pairs_forever(f->url, pipes[1]);
        close(pipes[1]);
        int reported = -1, i;
        for (int n = 0; n < 20 + 7 * round; n++) {
            assert_int_equal(read(pipes[0], &i, sizeof i), sizeof i);
            reported = i;
        }
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        while (read(pipes[0], &i, sizeof i) == sizeof i)
            reported = i;
        close(pipes[0]);

        assert_int_equal(db_open(f->url, &f->db), 0);
        int64_t halves = -1;
        assert_int_equal(db_read(f->db, read_halves, &halves), 0);
        assert_int_equal(halves, 0);
        assert_true(count(f->db) >= 2 * (reported + 1));
        sqlite3_exec(self(f->db)->writer->sqlite, "DELETE FROM tenants", NULL, NULL, NULL);
        db_close(f->db);
    }
    assert_int_equal(db_open(f->url, &f->db), 0);
}

static void migrations_run_once_and_in_their_ranges(void **state)
{
    struct test_db *f = *state;
    int version = 0, newest = 0;
    bool seen[100] = {0};
    for (size_t t = 0; db_migrations[t]; t++)
        for (const struct migration *m = db_migrations[t]; m->name; m++) {
            assert_true(m->number > newest && m->number < 100);
            assert_false(seen[m->number]);
            seen[m->number] = true;
            newest = m->number;
        }
    assert_int_equal(db_version(f->db, &version), 0);
    assert_int_equal(version, newest);
    assert_int_equal(insert(f->db, "kept", "kept"), 0);
    db_close(f->db);
    assert_int_equal(db_open(f->url, &f->db), 0);
    assert_int_equal(count(f->db), 1);
}

static err open_and_close(const char *path, int64_t *out_rows)
{
    char url[160];
    struct db *copy = NULL;
    snprintf(url, sizeof url, "sqlite:%s", path);
    TRY(db_open(url, &copy));
    *out_rows = count(copy);
    db_close(copy);
    return 0;
}

static void a_snapshot_is_a_database_of_one_instant(void **state)
{
    struct test_db *f = *state;
    char path[128], name[160];
    int64_t rows = -1;
    snprintf(path, sizeof path, "%s/copy.db", f->dir);
    assert_int_equal(insert(f->db, "t1", "one"), 0);
    assert_int_equal(db_snapshot(f->db, path), 0);
    assert_int_equal(insert(f->db, "t2", "two"), 0);
    assert_int_equal(open_and_close(path, &rows), 0);
    assert_int_equal(rows, 1);
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
    assert_int_equal(db_snapshot(f->db, "/nowhere/at/all.db"), E_IO);
    assert_int_equal(count(f->db), 2);
}

#define WITH_DB(f) cmocka_unit_test_setup_teardown(f, test_db_set_up, test_db_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DB(waiting_writes_are_committed_as_one_group),
        WITH_DB(a_failing_write_rolls_back_only_itself),
        WITH_DB(a_failed_commit_fails_every_write_of_the_group),
        WITH_DB(a_full_disk_is_an_error_and_not_a_loss),
        WITH_DB(a_unique_violation_is_a_conflict),
        WITH_DB(text_with_nul_comes_back_whole),
        WITH_DB(every_kind_of_value_survives),
        WITH_DB(one_statement_can_be_open_twice),
        WITH_DB(the_statement_cache_is_bounded),
        WITH_DB(mistakes_in_sql_are_internal_errors),
        WITH_DB(a_read_cannot_write),
        WITH_DB(it_reads_now_while_an_open_connection_is_free),
        WITH_DB(many_threads_read_and_write_at_once),
        WITH_DB(kill_9_leaves_whole_transactions_and_all_that_were_reported),
        WITH_DB(migrations_run_once_and_in_their_ranges),
        WITH_DB(a_snapshot_is_a_database_of_one_instant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
