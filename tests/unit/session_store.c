/* src/session/store.c on a real database. Writes run on the database's thread, so a step only
   returns what it got; asserts stand in the tests. */
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

static err run_step(struct db_conn *c, void *arg)
{
    struct step *s = arg;
    return s->run(c, s);
}

static err in_write(struct fixture *f, struct step *s)
{
    s->f = f;
    return db_write(f->at.db, run_step, s);
}

static err in_read(struct fixture *f, struct step *s)
{
    s->f = f;
    return db_read(f->at.db, run_step, s);
}

static err add_tenants(struct db_conn *c, struct step *s)
{
    (void)s;
    static const char sql[] = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $1, 1)";
    TRY(db_exec(c, sql, DB_ARGS(DB_C(TENANT)), NULL));
    return db_exec(c, sql, DB_ARGS(DB_C(OTHER)), NULL);
}

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    test_db_open(&f->at);
    f->a = arena_new();
    assert_int_equal(in_write(f, &(struct step){.run = add_tenants}), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_free(f->a);
    test_db_close(&f->at);
    mem_free(f);
    return 0;
}

/* ---- steps ---- */

static err step_insert(struct db_conn *c, struct step *s)
{
    return session_insert(c, s->row);
}

static err step_find(struct db_conn *c, struct step *s)
{
    return session_find(c, s->f->a, s->tenant, str_of(s->id), &s->found);
}

static err step_list(struct db_conn *c, struct step *s)
{
    return session_list(c, s->f->a, s->tenant, s->filter, &s->rows, &s->n);
}

static err step_note_request(struct db_conn *c, struct step *s)
{
    return session_note_request(c, s->tenant, s->id, s->text);
}

static err step_delete(struct db_conn *c, struct step *s)
{
    return session_mark_deleted(c, s->tenant, s->id, 5000);
}

static err step_apply(struct db_conn *c, struct step *s)
{
    return session_apply(c, s->tenant, s->id, s->update, 7000);
}

static err step_inbox_add(struct db_conn *c, struct step *s)
{
    return inbox_add(c, s->tenant, s->id, s->text, STR("{\"text\":\"a\\u0000b\"}"), 1);
}

static err step_inbox(struct db_conn *c, struct step *s)
{
    return inbox_pending(c, s->f->a, s->tenant, s->id, &s->items, &s->n);
}

static err step_inbox_remove(struct db_conn *c, struct step *s)
{
    return inbox_remove(c, s->tenant, s->id, s->number);
}

static err step_unfinished(struct db_conn *c, struct step *s)
{
    return sessions_unfinished(c, s->f->a, &s->refs, &s->n);
}

static err step_to_stop(struct db_conn *c, struct step *s)
{
    return sessions_to_stop(c, s->f->a, s->number, &s->refs, &s->n);
}

static err step_exists(struct db_conn *c, struct step *s)
{
    return session_exists(c, s->id, &s->yes);
}

/* ---- in the words of the tests ---- */

static struct session_row row_of(const char *tenant, const char *id, int64_t at)
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

static void add(struct fixture *f, const char *id, int64_t at)
{
    struct session_row row = row_of(TENANT, id, at);
    assert_int_equal(in_write(f, &(struct step){.run = step_insert, .row = &row}), 0);
}

static struct session_row find(struct fixture *f, const char *id)
{
    struct step s = {.run = step_find, .tenant = TENANT, .id = id};
    assert_int_equal(in_read(f, &s), 0);
    return s.found;
}

static const char *list(struct fixture *f, struct session_filter filter)
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

static void apply(struct fixture *f, const char *id, struct session_update u)
{
    struct step s = {.run = step_apply, .tenant = TENANT, .id = id, .update = &u};
    assert_int_equal(in_write(f, &s), 0);
}

static err post(struct fixture *f, const char *id, const char *event)
{
    return in_write(
        f, &(struct step){.run = step_inbox_add, .tenant = TENANT, .id = id, .text = event});
}

static struct step inbox(struct fixture *f, const char *tenant, const char *id)
{
    struct step s = {.run = step_inbox, .tenant = tenant, .id = id};
    assert_int_equal(in_read(f, &s), 0);
    return s;
}

/* ---- sessions ---- */

static void a_session_comes_back_as_it_was_made(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    struct session_row row = find(f, "sess_1");
    assert_string_equal(row.id, "sess_1");
    assert_string_equal(row.tenant, TENANT);
    assert_string_equal(row.agent_id, "agent_1");
    assert_string_equal(row.environment_id, "env_1");
    assert_int_equal(row.agent_version, 3);
    assert_string_equal(row.agent_json, "{\"name\":\"a\"}");
    assert_string_equal(row.title, "A title");
    assert_null(row.budget_json);
    assert_null(row.stop_reason_json);
    assert_string_equal(row.status, "idle");
    assert_string_equal(row.sandbox_state, "none");
    assert_int_equal(row.created_at_ms, 1000);
    assert_int_equal(row.usage.input_tokens, 0);
}

static void a_request_leads_to_its_sessions_and_to_no_other_tenants(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    add(f, "sess_2", 2000);
    add(f, "sess_3", 3000);
    struct step note = {.run = step_note_request, .tenant = TENANT, .id = "sess_1", .text = "r"};
    assert_int_equal(in_write(f, &note), 0);
    assert_int_equal(in_write(f, &note), 0); /* the same request may speak twice */
    note.id = "sess_2";
    assert_int_equal(in_write(f, &note), 0);
    assert_string_equal(LIST(f, .request_id = "r", .limit = 9), "sess_2 sess_1");
    assert_string_equal(LIST(f, .request_id = "other", .limit = 9), "");
    struct session_filter filter = {.request_id = "r", .limit = 9};
    struct step s = {.run = step_list, .tenant = OTHER, .filter = &filter};
    assert_int_equal(in_read(f, &s), 0);
    assert_int_equal(s.n, 0);
}

static void another_tenants_session_is_not_found(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    struct step s = {.run = step_find, .tenant = OTHER, .id = "sess_1"};
    assert_int_equal(in_read(f, &s), E_NOT_FOUND);
    assert_string_equal(err_code(), "session_not_found");
    s.run = step_delete;
    assert_int_equal(in_write(f, &s), E_NOT_FOUND);
    struct session_update u = {.status = "running"};
    s = (struct step){.run = step_apply, .tenant = OTHER, .id = "sess_1", .update = &u};
    assert_int_equal(in_write(f, &s), 0);
    assert_string_equal(find(f, "sess_1").status, "idle");
    assert_int_equal(inbox(f, OTHER, "sess_1").n, 0);
    s = (struct step){.run = step_inbox_add, .tenant = OTHER, .id = "sess_1", .text = "evt_1"};
    assert_int_not_equal(in_write(f, &s), 0); /* the foreign key holds */
}

static void a_deleted_session_is_gone_with_its_inbox(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    assert_int_equal(post(f, "sess_1", "evt_1"), 0);
    struct step s = {.run = step_delete, .tenant = TENANT, .id = "sess_1"};
    assert_int_equal(in_write(f, &s), 0);
    assert_int_equal(in_write(f, &s), E_NOT_FOUND); /* once */
    s.run = step_find;
    assert_int_equal(in_read(f, &s), E_NOT_FOUND);
    assert_string_equal(LIST(f, .limit = 9), "");
    assert_int_equal(inbox(f, TENANT, "sess_1").n, 0);
    s.run = step_exists;
    assert_int_equal(in_read(f, &s), 0);
    assert_false(s.yes);
}

static void sessions_are_listed_in_pages(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_a", 1000);
    add(f, "sess_c", 2000);
    add(f, "sess_b", 2000); /* same time: by id */
    add(f, "sess_d", 3000);
    assert_string_equal(LIST(f, .limit = 9), "sess_d sess_c sess_b sess_a");
    assert_string_equal(LIST(f, .limit = 2), "sess_d sess_c");
    assert_string_equal(
        LIST(f, .limit = 2, .has_after = true, .after_at_ms = 2000, .after_id = "sess_c"),
        "sess_b sess_a");
    assert_string_equal(LIST(f, .limit = 9, .ascending = true), "sess_a sess_b sess_c sess_d");
    assert_string_equal(LIST(f, .limit = 9, .ascending = true, .has_after = true,
                             .after_at_ms = 2000, .after_id = "sess_b"),
                        "sess_c sess_d");
    assert_string_equal(LIST(f, .limit = 0), "");
}

static void a_list_can_be_narrowed(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_a", 1000);
    add(f, "sess_b", 2000);
    apply(f, "sess_b", (struct session_update){.status = "running"});
    assert_string_equal(LIST(f, .limit = 9, .status = "running"), "sess_b");
    assert_string_equal(LIST(f, .limit = 9, .status = "idle", .agent_id = "agent_1"), "sess_a");
    assert_string_equal(LIST(f, .limit = 9, .agent_id = "agent_2"), "");
    assert_string_equal(LIST(f, .limit = 9, .environment_id = "env_1"), "sess_b sess_a");
    assert_string_equal(LIST(f, .limit = 9, .environment_id = "env_2"), "");
}

/* How SQLite goes about a list, one step a line. */
static err step_plan(struct db_conn *c, struct step *s)
{
    struct list_query q = {0};
    list_query(&q, s->tenant, s->filter);
    AUTO_BUF sql = q.sql;
    AUTO_BUF plan = {0};
    struct db_rows *r;
    TRY(db_query(c, arena_printf(s->f->a, "EXPLAIN QUERY PLAN %s", sql.p), q.args, q.n, &r));
    while (db_next(r))
        buf_printf(&plan, "%.*s\n", STR_ARG(db_str(r, 3)));
    s->text = arena_strdup(s->f->a, plan.p);
    return db_rows_done(r);
}

static void assert_plan(struct fixture *f, struct session_filter filter, const char *plan)
{
    for (int from_start = 0; from_start < 2; from_start++) {
        for (int ascending = 0; ascending < 2; ascending++) {
            filter.ascending = ascending;
            filter.has_after = !from_start;
            filter.after_id = "sess_1";
            struct step s = {.run = step_plan, .tenant = TENANT, .filter = &filter};
            assert_int_equal(in_read(f, &s), 0);
            const char *range = from_start ? "" : " AND (created_at,id)";
            const char *sign = from_start ? "" : ascending ? ">(?,?)" : "<(?,?)";
            assert_string_equal(s.text, arena_printf(f->a, "SEARCH sessions USING INDEX %s%s%s)\n",
                                                     plan, range, sign));
        }
    }
}

/* One step: from where the page begins, in its order, without a sort. */
static void no_list_reads_what_it_does_not_show(void **state)
{
    struct fixture *f = *state;
    assert_plan(f, (struct session_filter){0}, "sessions_by_age (tenant_id=?");
    assert_plan(f, (struct session_filter){.status = "idle"},
                "sessions_by_status (status=? AND tenant_id=?");
    assert_plan(f, (struct session_filter){.agent_id = "agent_1"},
                "sessions_by_agent (tenant_id=? AND agent_id=?");
    assert_plan(f, (struct session_filter){.environment_id = "env_1"},
                "sessions_by_environment (tenant_id=? AND environment_id=?");
}

static void a_list_by_request_reads_the_sessions_of_the_request(void **state)
{
    struct session_filter filter = {.request_id = "req_1"};
    struct step s = {.run = step_plan, .tenant = TENANT, .filter = &filter};
    assert_int_equal(in_read(*state, &s), 0);
    assert_string_equal(s.text,
                        "SEARCH session_requests USING COVERING INDEX "
                        "sqlite_autoindex_session_requests_1 (tenant_id=? AND request_id=?)\n"
                        "SEARCH sessions USING INDEX sqlite_autoindex_sessions_1 (tenant_id=? AND "
                        "id=?)\nUSE TEMP B-TREE FOR ORDER BY\n");
}

static void an_update_changes_what_it_names(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    struct session_usage usage = {10, 20, 30, 40, 0.5, true};
    apply(f, "sess_1",
          (struct session_update){.status = "running", .usage = &usage, .activity_ms = 6000});
    struct session_row row = find(f, "sess_1");
    assert_string_equal(row.status, "running");
    assert_null(row.stop_reason_json);
    assert_int_equal(row.last_activity_ms, 6000);
    assert_int_equal(row.updated_at_ms, 7000);
    assert_memory_equal(&row.usage, &usage, offsetof(struct session_usage, estimated));
    assert_true(row.usage.estimated);
    apply(f, "sess_1",
          (struct session_update){.status = "idle",
                                  .stop_reason_json = "{\"type\":\"end_turn\"}",
                                  .sandbox_state = "running",
                                  .activity_ms = 100}); /* activity never goes back */
    row = find(f, "sess_1");
    assert_string_equal(row.stop_reason_json, "{\"type\":\"end_turn\"}");
    assert_string_equal(row.sandbox_state, "running");
    assert_int_equal(row.last_activity_ms, 6000);
    assert_int_equal(row.usage.output_tokens, 20); /* not named: kept */
}

static void a_row_is_shown_as_json(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1796040000000);
    struct session_usage usage = {1, 2, 3, 4, 0.25, false};
    apply(f, "sess_1",
          (struct session_update){.stop_reason_json = "{\"type\":\"end_turn\"}", .usage = &usage});
    struct session_row row = find(f, "sess_1");
    AUTO_BUF text = {0};
    session_row_write(&row, &text);
    buf_add_char(&text, '}');
    json_t *read = NULL;
    assert_int_equal(json_read(buf_str(&text), &read), 0);
    AUTO_JSON j = read;
    assert_string_equal(json_get_c(j, "id"), "sess_1");
    assert_string_equal(json_get_c(j, "createdAt"), "2026-11-30T12:00:00.000Z");
    assert_string_equal(json_get_c(json_object_get(j, "stopReason"), "type"), "end_turn");
    assert_string_equal(json_get_c(json_object_get(j, "agent"), "name"), "a");
    assert_true(json_is_null(json_object_get(j, "budget")));
    const json_t *u = json_object_get(j, "usage");
    assert_int_equal(json_get_int(u, "cacheCreationInputTokens", 0), 4);
    assert_true(json_get_real(u, "costUsd", 0) == 0.25);
    assert_null(json_object_get(u, "estimated"));
    assert_null(json_object_get(j, "tenant"));
}

/* ---- inbox ---- */

static void posts_wait_in_order(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    add(f, "sess_2", 1000);
    assert_int_equal(post(f, "sess_1", "evt_z"), 0);
    assert_int_equal(post(f, "sess_2", "evt_m"), 0);
    assert_int_equal(post(f, "sess_1", "evt_a"), 0);
    struct step s = inbox(f, TENANT, "sess_1");
    assert_int_equal(s.n, 2);
    assert_string_equal(s.items[0].event_id, "evt_z");
    assert_string_equal(s.items[1].event_id, "evt_a");
    assert_true(s.items[0].position < s.items[1].position);
    assert_true(str_eq(s.items[0].event, STR("{\"text\":\"a\\u0000b\"}")));
    s = (struct step){
        .run = step_inbox_remove, .tenant = TENANT, .id = "sess_1", .number = s.items[0].position};
    assert_int_equal(in_write(f, &s), 0);
    s = inbox(f, TENANT, "sess_1");
    assert_int_equal(s.n, 1);
    assert_string_equal(s.items[0].event_id, "evt_a");
    assert_int_equal(inbox(f, TENANT, "sess_2").n, 1);
}

static void an_event_id_is_taken_once(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    assert_int_equal(post(f, "sess_1", "evt_1"), 0);
    assert_int_equal(post(f, "sess_1", "evt_1"), E_CONFLICT);
    assert_int_equal(inbox(f, TENANT, "sess_1").n, 1);
}

static void a_long_inbox_is_read_piece_by_piece(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    char id[32];
    for (int i = 0; i < 150; i++) {
        snprintf(id, sizeof id, "evt_%03d", i);
        assert_int_equal(post(f, "sess_1", id), 0);
    }
    int seen = 0;
    for (struct step s = inbox(f, TENANT, "sess_1"); s.n > 0; s = inbox(f, TENANT, "sess_1")) {
        for (size_t i = 0; i < s.n; i++) {
            snprintf(id, sizeof id, "evt_%03d", seen++);
            assert_string_equal(s.items[i].event_id, id);
        }
        struct step gone = {.run = step_inbox_remove,
                            .tenant = TENANT,
                            .id = "sess_1",
                            .number = s.items[s.n - 1].position};
        assert_int_equal(in_write(f, &gone), 0);
    }
    assert_int_equal(seen, 150);
}

/* ---- sweeps ---- */

static const char *refs(struct fixture *f, struct step s)
{
    static char text[300];
    assert_int_equal(in_read(f, &s), 0);
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < s.n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s ", s.refs[i].id);
    return text;
}

static void what_was_left_unfinished_is_found(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_idle", 1000);
    add(f, "sess_running", 1000);
    add(f, "sess_retrying", 1000);
    add(f, "sess_posted", 1000);
    add(f, "sess_deleted", 1000);
    apply(f, "sess_running", (struct session_update){.status = "running"});
    apply(f, "sess_retrying", (struct session_update){.status = "rescheduling"});
    apply(f, "sess_deleted", (struct session_update){.status = "running"});
    assert_int_equal(post(f, "sess_posted", "evt_1"), 0);
    struct step gone = {.run = step_delete, .tenant = TENANT, .id = "sess_deleted"};
    assert_int_equal(in_write(f, &gone), 0);
    const char *found = refs(f, (struct step){.run = step_unfinished});
    assert_non_null(strstr(found, "sess_running "));
    assert_non_null(strstr(found, "sess_retrying "));
    assert_non_null(strstr(found, "sess_posted "));
    assert_int_equal(strlen(found), strlen("sess_running sess_retrying sess_posted "));
}

/* R30: the fixture's environment says 10 seconds. */
static void sandboxes_of_idle_sessions_are_to_be_stopped(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_idle", 1000);
    add(f, "sess_busy", 1000);
    add(f, "sess_none", 1000);
    apply(f, "sess_idle", (struct session_update){.sandbox_state = "running"});
    apply(f, "sess_busy", (struct session_update){.sandbox_state = "running", .status = "running"});
    assert_string_equal(refs(f, (struct step){.run = step_to_stop, .number = 10999}), "");
    assert_string_equal(refs(f, (struct step){.run = step_to_stop, .number = 11000}), "sess_idle ");
}

static void a_session_exists_in_whatever_tenant(void **state)
{
    struct fixture *f = *state;
    struct session_row row = row_of(OTHER, "sess_o", 1);
    assert_int_equal(in_write(f, &(struct step){.run = step_insert, .row = &row}), 0);
    struct step s = {.run = step_exists, .id = "sess_o"};
    assert_int_equal(in_read(f, &s), 0);
    assert_true(s.yes);
    s.id = "sess_none";
    assert_int_equal(in_read(f, &s), 0);
    assert_false(s.yes);
}

static err step_change(struct db_conn *c, struct step *s)
{
    AUTO_JSON change = json_loads(s->text, 0, NULL);
    return session_change_row(c, s->tenant, s->id, change, s->yes ? "{\"id\":\"agent_2\"}" : NULL,
                              5000);
}

static void a_change_changes_what_it_names(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    struct session_row before = find(f, "sess_1");
    struct step s = {.run = step_change, .tenant = TENANT, .id = "sess_1"};
    s.text = "{\"title\":\"new\"}";
    assert_int_equal(in_write(f, &s), 0);
    assert_string_equal(find(f, "sess_1").title, "new");
    assert_string_equal(find(f, "sess_1").metadata_json, before.metadata_json);
    s.text = "{\"metadata\":{\"a\":\"b\"},\"title\":null}";
    s.yes = true;
    assert_int_equal(in_write(f, &s), 0);
    struct session_row now = find(f, "sess_1");
    assert_null(now.title);
    assert_string_equal(now.metadata_json, "{\"a\":\"b\"}");
    assert_string_equal(now.agent_json, "{\"id\":\"agent_2\"}");
    assert_int_equal(now.updated_at_ms, 5000);
    s.tenant = OTHER;
    assert_int_equal(in_write(f, &s), E_NOT_FOUND);
    s = (struct step){.run = step_delete, .tenant = TENANT, .id = "sess_1"};
    assert_int_equal(in_write(f, &s), 0);
    s.run = step_change;
    s.text = "{}";
    assert_int_equal(in_write(f, &s), E_NOT_FOUND);
}

static err step_expired(struct db_conn *c, struct step *s)
{
    return sessions_expired(c, s->f->a, s->number, &s->refs, &s->n);
}

static err step_forget(struct db_conn *c, struct step *s)
{
    return session_forget(c, s->tenant, s->id);
}

static size_t expired(struct fixture *f, int64_t before_ms)
{
    struct step s = {.run = step_expired, .number = before_ms};
    assert_int_equal(in_read(f, &s), 0);
    return s.n;
}

static void deleted_sessions_expire_and_are_forgotten(void **state)
{
    struct fixture *f = *state;
    add(f, "sess_1", 1000);
    add(f, "sess_2", 1000);
    assert_int_equal(expired(f, INT64_MAX), 0);
    struct step s = {.run = step_delete, .tenant = TENANT, .id = "sess_1"};
    assert_int_equal(in_write(f, &s), 0);
    assert_int_equal(expired(f, INT64_MAX), 1);
    assert_int_equal(expired(f, 1), 0);
    s.run = step_forget;
    s.id = "sess_2"; /* lives */
    assert_int_equal(in_write(f, &s), 0);
    assert_string_equal(find(f, "sess_2").status, "idle");
    s.id = "sess_1";
    assert_int_equal(in_write(f, &s), 0);
    assert_int_equal(expired(f, INT64_MAX), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_comes_back_as_it_was_made),
        TEST(another_tenants_session_is_not_found),
        TEST(a_request_leads_to_its_sessions_and_to_no_other_tenants),
        TEST(a_deleted_session_is_gone_with_its_inbox),
        TEST(sessions_are_listed_in_pages),
        TEST(a_list_can_be_narrowed),
        TEST(no_list_reads_what_it_does_not_show),
        TEST(a_list_by_request_reads_the_sessions_of_the_request),
        TEST(an_update_changes_what_it_names),
        TEST(a_row_is_shown_as_json),
        TEST(posts_wait_in_order),
        TEST(an_event_id_is_taken_once),
        TEST(a_long_inbox_is_read_piece_by_piece),
        TEST(what_was_left_unfinished_is_found),
        TEST(sandboxes_of_idle_sessions_are_to_be_stopped),
        TEST(a_session_exists_in_whatever_tenant),
        TEST(a_change_changes_what_it_names),
        TEST(deleted_sessions_expire_and_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
