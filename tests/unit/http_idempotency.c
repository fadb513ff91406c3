/* R12 over sockets and a real database: one effect for each key, whatever clients do. */
#include "http_raw.h"

#include "base/arena.h"
#include "base/lock.h"
#include "db/db.h"
#include "http/exchange.h"

#include <ftw.h>

#define RACERS 20

static uint16_t port;
static struct http_server *server;
static struct db *db;
static struct clock *now;
static char folder[64];

/* Opened by tests that want to hold a handler in the middle. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed;
static bool gate_closed;
static unsigned at_gate;

static void pass_gate(void)
{
    AUTO_LOCK(&gate_lock);
    at_gate++;
    pthread_cond_broadcast(&gate_changed);
    while (gate_closed)
        if (!cond_wait_ms(&gate_changed, &gate_lock, RAW_WAIT_MS))
            return;
}

static void set_gate(bool is_closed)
{
    AUTO_LOCK(&gate_lock);
    gate_closed = is_closed;
    at_gate = 0;
    pthread_cond_broadcast(&gate_changed);
}

static void wait_for_someone_at_gate(void)
{
    AUTO_LOCK(&gate_lock);
    while (at_gate == 0)
        if (!cond_wait_ms(&gate_changed, &gate_lock, RAW_WAIT_MS))
            test_fail("nobody came to the gate\n");
}

static err add_thing(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    char id[ID_MAX];
    id_new("thing", clock_wall_ms(ctx->clock), id);
    TRY(db_exec(c, "INSERT INTO things (tenant_id, id) VALUES ($1, $2)",
                DB_ARGS(DB_C(ctx->tenant), DB_C(id)), NULL));
    int status = (int)json_get_int(ctx->json, "status", 201);
    if (json_get_bool(ctx->json, "failInside", false))
        return fail_as(E_CONFLICT, "thing_exists", "after the row was written");
    if (status == 204)
        return reply_empty(ctx, status);
    reply_header(ctx, "Location", arena_printf(ctx->arena, "/v1/things/%s", id));
    json_t *body = json_object();
    json_set_str(body, "id", str_of(id));
    return reply_json(ctx, status, body);
}

static err create_thing(struct ctx *ctx)
{
    pass_gate();
    switch (json_get_int(ctx->json, "fail", 0)) {
    case 400:
        return fail(E_INVALID, "no good");
    case 429:
        return fail(E_QUOTA, "too many");
    case 503:
        return fail(E_UNAVAILABLE, "down");
    default:
        return ctx_write(ctx, add_thing, NULL);
    }
}

static const struct route table[] = {
    {POST, "/v1/things", create_thing, .scope = SCOPE_WRITE, .body_max = 64 * KB,
     .idempotent = true},
    {POST, "/v1/things/:id/copy", create_thing, .scope = SCOPE_WRITE, .body_max = 64 * KB,
     .idempotent = true, .query = "deep"},
    {0},
};
static const struct route *const tables[] = {table, NULL};

/* The token is the name of the tenant. */
static bool authenticate_cached(struct service *service, struct str token, struct http_auth *out)
{
    (void)service;
    snprintf(out->tenant, sizeof out->tenant, "tenant_%.*s", STR_ARG(token));
    out->scope = SCOPE_WRITE;
    return true;
}

static err authenticate(struct service *service, struct str token, struct http_auth *out)
{
    authenticate_cached(service, token, out);
    return 0;
}

static err make_table(struct db_conn *c, void *arg)
{
    (void)arg;
    return db_exec(c, "CREATE TABLE things (tenant_id TEXT NOT NULL, id TEXT NOT NULL)", DB_NO_ARGS,
                   NULL);
}

static int start(void **state)
{
    (void)state;
    cond_init(&gate_changed);
    now = clock_fake_new(1800000000000);
    snprintf(folder, sizeof folder, "/tmp/http-idempotency-XXXXXX");
    assert_non_null(mkdtemp(folder));
    char url[128];
    snprintf(url, sizeof url, "sqlite:%s/control.db", folder);
    assert_int_equal(db_open(url, &db), 0);
    assert_int_equal(db_write(db, make_table, NULL), 0);
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = now,
                             .db = db,
                             .workers = 8,
                             .authenticate = authenticate,
                             .authenticate_cached = authenticate_cached};
    return http_start(&o, &server);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int stop(void **state)
{
    (void)state;
    http_stop(server, 5000);
    db_close(db);
    clock_fake_free(now);
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static struct raw_reply post_as(const char *tenant, const char *path, const char *key,
                                const char *body)
{
    AUTO_BUF field = {0};
    if (key)
        buf_printf(&field, "Idempotency-Key: %s\r\n", key);
    return raw_askf(port,
                    "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                    "Content-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s",
                    path, tenant, field.n ? field.p : "", strlen(body), body);
}

static struct raw_reply post(const char *key, const char *body)
{
    return post_as("a", "/v1/things", key, body);
}

static err read_count(struct db_conn *c, void *arg)
{
    struct db_rows *rows;
    TRY(db_query(c, "SELECT count(*) FROM things WHERE tenant_id IS NOT NULL", DB_NO_ARGS, &rows));
    if (db_next(rows))
        *(int64_t *)arg = db_int(rows, 0);
    return db_rows_done(rows);
}

static int64_t count_things(void)
{
    int64_t n = -1;
    assert_int_equal(db_read(db, read_count, &n), 0);
    return n;
}

static void expect_code(struct raw_reply *r, int status, const char *code)
{
    assert_int_equal(r->status, status);
    AUTO_JSON j = raw_json(r);
    assert_string_equal(json_get_c(j, "code"), code);
    raw_reply_done(r);
}

static void a_retry_gets_the_same_bytes_and_no_second_effect(void **state)
{
    (void)state;
    int64_t before = count_things();
    struct raw_reply first = post("retry-1", "{\"status\":202}");
    char location[256];
    assert_int_equal(first.status, 202);
    snprintf(location, sizeof location, "%s", raw_header(&first, "Location"));
    assert_true(strlen(location) > strlen("/v1/things/"));
    assert_string_equal(raw_header(&first, "Idempotent-Replayed"), "");
    struct raw_reply again = post("\"retry-1\"", "{\"status\":202}"); /* quoted is the same key */
    assert_int_equal(again.status, 202);
    assert_string_equal(again.body.p, first.body.p);
    assert_string_equal(raw_header(&again, "Location"), location);
    assert_string_equal(raw_header(&again, "Content-Type"), "application/json");
    assert_string_equal(raw_header(&again, "Idempotent-Replayed"), "true");
    assert_int_equal(count_things(), before + 1);
    raw_reply_done(&first);
    raw_reply_done(&again);
}

static void an_empty_reply_is_kept_too(void **state)
{
    (void)state;
    int64_t before = count_things();
    for (int i = 0; i < 2; i++) {
        struct raw_reply r = post("empty-1", "{\"status\":204}");
        assert_int_equal(r.status, 204);
        assert_string_equal(raw_header(&r, "Content-Type"), "");
        assert_string_equal(raw_header(&r, "Idempotent-Replayed"), i ? "true" : "");
        raw_reply_done(&r);
    }
    assert_int_equal(count_things(), before + 1);
}

static void without_a_key_every_request_counts(void **state)
{
    (void)state;
    int64_t before = count_things();
    for (int i = 0; i < 2; i++) {
        struct raw_reply r = post(NULL, "{}");
        assert_int_equal(r.status, 201);
        raw_reply_done(&r);
    }
    assert_int_equal(count_things(), before + 2);
}

static void another_body_or_query_is_422(void **state)
{
    (void)state;
    struct raw_reply r = post("body-1", "{}");
    raw_reply_done(&r);
    r = post("body-1", "{ }");
    expect_code(&r, 422, "idempotency_key_reused");
    r = post_as("a", "/v1/things/1/copy?deep=1", "body-1", "{}");
    assert_int_equal(r.status, 201);
    raw_reply_done(&r);
    r = post_as("a", "/v1/things/1/copy?deep=2", "body-1", "{}");
    expect_code(&r, 422, "idempotency_key_reused");
}

static void a_key_belongs_to_tenant_method_and_path(void **state)
{
    (void)state;
    int64_t before = count_things();
    static const struct {
        const char *tenant, *path;
    } cases[] = {
        {"a", "/v1/things"},        {"b", "/v1/things"},          {"a", "/v1/things/1/copy"},
        {"a", "/v1/things/2/copy"}, {"a", "/v1/things/%32/copy"}, /* the same path as before */
    };
    for (size_t i = 0; i < 5; i++) {
        struct raw_reply r = post_as(cases[i].tenant, cases[i].path, "scope-1", "{}");
        assert_int_equal(r.status, 201);
        assert_string_equal(raw_header(&r, "Idempotent-Replayed"), i == 4 ? "true" : "");
        raw_reply_done(&r);
    }
    assert_int_equal(count_things(), before + 4);
}

static void bad_keys_are_400(void **state)
{
    (void)state;
    char long_key[300];
    memset(long_key, 'k', sizeof long_key);
    long_key[256] = 0;
    const char *const bad[] = {"",        "a b",      "\"\"",        "\"open", "\"a\"b\"",
                               "\"a b\"", "\"a\\n\"", "caf\xc3\xa9", "\"\\\"", long_key};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct raw_reply r = post(bad[i], "{}");
        if (r.status != 400)
            test_fail("key %s: %d\n", bad[i], r.status);
        expect_code(&r, 400, "invalid_idempotency_key");
    }
    long_key[255] = 0;
    const char *const good[] = {"!~", "\"a\\\"b\\\\\"", "a\"b", long_key};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct raw_reply r = post(good[i], "{}");
        if (r.status != 201)
            test_fail("key %s: %d\n", good[i], r.status);
        raw_reply_done(&r);
    }
}

struct racer {
    int status;
    bool replayed;
    char body[128];
};

static void *race(void *arg)
{
    struct racer *me = arg;
    for (;;) { /* as a client does: a 409 means try again */
        struct raw_reply r = post("race-1", "{\"status\":201}");
        me->status = r.status;
        me->replayed = raw_header(&r, "Idempotent-Replayed")[0] != 0;
        snprintf(me->body, sizeof me->body, "%s", r.body.n ? r.body.p : "");
        raw_reply_done(&r);
        if (me->status != 409)
            return NULL;
    }
}

static void twenty_at_once_make_one_effect(void **state)
{
    (void)state;
    int64_t before = count_things();
    struct racer racers[RACERS] = {0};
    pthread_t threads[RACERS];
    for (int i = 0; i < RACERS; i++)
        threads[i] = thread_start("racer", race, &racers[i]);
    int originals = 0;
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, 201);
        originals += !racers[i].replayed;
    }
    for (int i = 0; i < RACERS; i++)
        assert_string_equal(racers[i].body, racers[0].body);
    assert_int_equal(originals, 1);
    assert_int_equal(count_things(), before + 1);
}

static void a_key_in_flight_is_409_and_says_when_to_come_back(void **state)
{
    (void)state;
    set_gate(true);
    AUTO_BUF text = {0};
    buf_add_c(&text, "POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\n"
                     "Content-Type: application/json\r\nIdempotency-Key: flight-1\r\n"
                     "Content-Length: 2\r\n\r\n{}");
    struct raw_client c = raw_connect(port);
    raw_send(&c, text.p, text.n);
    wait_for_someone_at_gate();
    struct raw_reply second = post("flight-1", "{}");
    assert_string_equal(raw_header(&second, "Retry-After"), "1");
    expect_code(&second, 409, "idempotency_in_flight");
    set_gate(false);
    struct raw_reply first = raw_read(&c, false);
    assert_int_equal(first.status, 201);
    struct raw_reply third = post("flight-1", "{}");
    assert_string_equal(third.body.p, first.body.p);
    raw_reply_done(&first);
    raw_reply_done(&third);
    raw_close(&c);
}

static void failures_of_the_service_are_not_kept_others_are(void **state)
{
    (void)state;
    static const struct {
        const char *key, *body;
        int status;
        bool kept;
    } cases[] = {
        {"fail-1", "{\"fail\":400}", 400, true},
        {"fail-2", "{\"fail\":429}", 429, false},
        {"fail-3", "{\"fail\":503}", 503, false},
        {"fail-4", "{\"failInside\":true}", 409, true},
    };
    int64_t before = count_things();
    for (size_t i = 0; i < 4; i++) {
        struct raw_reply first = post(cases[i].key, cases[i].body);
        struct raw_reply again = post(cases[i].key, cases[i].body);
        assert_int_equal(first.status, cases[i].status);
        assert_int_equal(again.status, cases[i].status);
        assert_int_equal(raw_header(&again, "Idempotent-Replayed")[0] != 0, cases[i].kept);
        assert_int_equal(strcmp(first.body.p, again.body.p) == 0, cases[i].kept);
        raw_reply_done(&first);
        raw_reply_done(&again);
    }
    assert_int_equal(count_things(), before); /* failing after the row rolled it back */
}

static err read_kept(struct db_conn *c, void *arg)
{
    struct db_rows *rows;
    TRY(db_query(c, "SELECT count(*) FROM idempotency WHERE tenant_id IS NOT NULL", DB_NO_ARGS,
                 &rows));
    if (db_next(rows))
        *(int64_t *)arg = db_int(rows, 0);
    return db_rows_done(rows);
}

static void after_a_day_the_key_is_new(void **state)
{
    (void)state;
    int64_t kept = -1, before = count_things();
    struct raw_reply r = post("old-1", "{}");
    raw_reply_done(&r);
    clock_fake_advance_ms(now, 24 * 3600 * 1000LL - 1);
    r = post("old-1", "{}");
    assert_string_equal(raw_header(&r, "Idempotent-Replayed"), "true");
    raw_reply_done(&r);
    clock_fake_advance_ms(now, 1);
    r = post("old-1", "{\"status\":202}"); /* takes over the old row, unswept */
    assert_int_equal(r.status, 202);
    raw_reply_done(&r);
    assert_int_equal(count_things(), before + 2);
    assert_int_equal(idempotency_sweep(db, clock_wall_ms(now)), 0);
    assert_int_equal(db_read(db, read_kept, &kept), 0);
    assert_int_equal(kept, 1); /* the new one */
    clock_fake_advance_ms(now, 24 * 3600 * 1000LL);
    assert_int_equal(idempotency_sweep(db, clock_wall_ms(now)), 0);
    assert_int_equal(db_read(db, read_kept, &kept), 0);
    assert_int_equal(kept, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_retry_gets_the_same_bytes_and_no_second_effect),
        cmocka_unit_test(an_empty_reply_is_kept_too),
        cmocka_unit_test(without_a_key_every_request_counts),
        cmocka_unit_test(another_body_or_query_is_422),
        cmocka_unit_test(a_key_belongs_to_tenant_method_and_path),
        cmocka_unit_test(bad_keys_are_400),
        cmocka_unit_test(twenty_at_once_make_one_effect),
        cmocka_unit_test(a_key_in_flight_is_409_and_says_when_to_come_back),
        cmocka_unit_test(failures_of_the_service_are_not_kept_others_are),
        cmocka_unit_test(after_a_day_the_key_is_new),
    };
    return cmocka_run_group_tests_name("http_idempotency", tests, start, stop);
}
