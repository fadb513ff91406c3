/* A database with two tenants and what the suites of src/session/store.c do with it. Writes run on
   the database's thread, so a step only returns what it got; asserts stand in the tests. Header
   only. */
#ifndef TESTS_UNIT_SESSION_STORE_SUPPORT_H
#define TESTS_UNIT_SESSION_STORE_SUPPORT_H

#include "session/store.c"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "db_support.h"

#define TENANT "tenant_1"
#define OTHER "tenant_2"

struct fixture {
    struct test_db at;
    struct arena *a;
};

struct step {
    struct fixture *f;
    err (*run)(struct db_conn *c, struct step *s);
    const char *tenant, *id, *text;
    int64_t number;
    const struct session_row *row;
    const struct session_filter *filter;
    const struct session_update *update;
    /* what it got */
    struct session_row found, *rows;
    struct inbox_item *items;
    struct session_ref *refs;
    size_t n;
    bool yes;
};

static inline err run_step(struct db_conn *c, void *arg)
{
    struct step *s = arg;
    return s->run(c, s);
}

static inline err in_write(struct fixture *f, struct step *s)
{
    s->f = f;
    return db_write(f->at.db, run_step, s);
}

static inline err in_read(struct fixture *f, struct step *s)
{
    s->f = f;
    return db_read(f->at.db, run_step, s);
}

static inline err add_tenants(struct db_conn *c, struct step *s)
{
    (void)s;
    static const char sql[] = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $1, 1)";
    TRY(db_exec(c, sql, DB_ARGS(DB_C(TENANT)), NULL));
    return db_exec(c, sql, DB_ARGS(DB_C(OTHER)), NULL);
}

static inline int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    test_db_open(&f->at);
    f->a = arena_new();
    assert_int_equal(in_write(f, &(struct step){.run = add_tenants}), 0);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_free(f->a);
    test_db_close(&f->at);
    mem_free(f);
    return 0;
}

/* ---- steps ---- */

static inline err step_insert(struct db_conn *c, struct step *s)
{
    return session_insert(c, s->row);
}

static inline err step_find(struct db_conn *c, struct step *s)
{
    return session_find(c, s->f->a, s->tenant, str_of(s->id), &s->found);
}

static inline err step_list(struct db_conn *c, struct step *s)
{
    return session_list(c, s->f->a, s->tenant, s->filter, &s->rows, &s->n);
}

static inline err step_note_request(struct db_conn *c, struct step *s)
{
    return session_note_request(c, s->tenant, s->id, s->text);
}

static inline err step_delete(struct db_conn *c, struct step *s)
{
    return session_mark_deleted(c, s->tenant, s->id, 5000);
}

static inline err step_apply(struct db_conn *c, struct step *s)
{
    return session_apply(c, s->tenant, s->id, s->update, 7000);
}

static inline err step_inbox_add(struct db_conn *c, struct step *s)
{
    return inbox_add(c, s->tenant, s->id, s->text, STR("{\"text\":\"a\\u0000b\"}"), 1);
}

static inline err step_inbox(struct db_conn *c, struct step *s)
{
    return inbox_pending(c, s->f->a, s->tenant, s->id, &s->items, &s->n);
}

static inline err step_inbox_remove(struct db_conn *c, struct step *s)
{
    return inbox_remove(c, s->tenant, s->id, s->number);
}

static inline err step_unfinished(struct db_conn *c, struct step *s)
{
    return sessions_unfinished(c, s->f->a, &s->refs, &s->n);
}

static inline err step_to_stop(struct db_conn *c, struct step *s)
{
    return sessions_to_stop(c, s->f->a, s->number, &s->refs, &s->n);
}

static inline err step_exists(struct db_conn *c, struct step *s)
{
    return session_exists(c, s->id, &s->yes);
}

/* ---- in the words of the tests ---- */

static inline struct session_row row_of(const char *tenant, const char *id, int64_t at)
{
    struct session_row row = {.agent_version = 3,
                              .agent_json = "{\"name\":\"a\"}",
                              .environment_json = "{\"idleTimeout\":10}",
                              .title = "A title",
                              .metadata_json = "{}",
                              .vault_ids_json = "[]",
                              .status = "idle",
                              .created_at_ms = at,
                              .updated_at_ms = at,
                              .last_activity_ms = at};
    snprintf(row.id, sizeof row.id, "%s", id);
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.agent_id, sizeof row.agent_id, "agent_1");
    snprintf(row.environment_id, sizeof row.environment_id, "env_1");
    return row;
}

static inline void add(struct fixture *f, const char *id, int64_t at)
{
    struct session_row row = row_of(TENANT, id, at);
    assert_int_equal(in_write(f, &(struct step){.run = step_insert, .row = &row}), 0);
}

static inline struct session_row find(struct fixture *f, const char *id)
{
    struct step s = {.run = step_find, .tenant = TENANT, .id = id};
    assert_int_equal(in_read(f, &s), 0);
    return s.found;
}

static inline const char *list(struct fixture *f, struct session_filter filter)
{
    static char text[300];
    struct step s = {.run = step_list, .tenant = TENANT, .filter = &filter};
    assert_int_equal(in_read(f, &s), 0);
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < s.n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "", s.rows[i].id);
    return text;
}
#define LIST(f, ...) list(f, (struct session_filter){__VA_ARGS__})

static inline void apply(struct fixture *f, const char *id, struct session_update u)
{
    struct step s = {.run = step_apply, .tenant = TENANT, .id = id, .update = &u};
    assert_int_equal(in_write(f, &s), 0);
}

static inline err post(struct fixture *f, const char *id, const char *event)
{
    return in_write(
        f, &(struct step){.run = step_inbox_add, .tenant = TENANT, .id = id, .text = event});
}

static inline struct step inbox(struct fixture *f, const char *tenant, const char *id)
{
    struct step s = {.run = step_inbox, .tenant = tenant, .id = id};
    assert_int_equal(in_read(f, &s), 0);
    return s;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
