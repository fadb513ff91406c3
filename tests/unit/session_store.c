/* src/session/store.c: rows of sessions, lists of them, changes. */
#include "session_store_support.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
