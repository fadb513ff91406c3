/* src/session/store.c: what waits in inboxes, and what the sweeps find. */
#include "session_store_support.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
