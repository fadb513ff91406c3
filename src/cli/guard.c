/* pi-managed guard: what the dial guard would do with a URL, and why. It runs here, in the person's
   own process, with the broker's code; it asks the system's resolver, and without --follow it
   connects to nothing. */
#include "cli/command.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/fd.h"
#include "broker/dial_ranges.h"
#include "broker/fetch.h"
#include "cli/guard_cases.h"

#include <curl/curl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define CASES_FILE_MAX (16u << 20)
#define TIMEOUT_MAX_S 3600
#define FETCH_MAX (1u << 20)

static const struct option options[] = {
    {"policy", "POLICY", "fetch", "fetch, webhook or model: who would ask"},
    {"allow-private", "HOST[:PORT],…", NULL, "as of serve"},
    {"follow", NULL, NULL, "fetch it, as the service would, with each redirect"},
    {"timeout", "SECONDS", "30", "for all of it"},
    {"vectors", "FILE", NULL, "run a file of cases instead of a URL"},
    OPTION_JSON,
    {0},
};

struct question {
    const struct invocation *call;
    struct dial_guard *guard;
    enum dial_policy policy;
    int64_t timeout_ms;
    struct dial_answers answers; /* what the name stood for: shown whatever the verdict is */
};

static err resolve_and_keep(void *arg, const char *host, int port, struct dial_answers *out)
{
    struct question *q = arg;
    TRY(dial_resolve(host, port, q->timeout_ms, -1, out));
    q->answers = *out;
    return 0;
}

static const char *address_text(const struct dial_address *a, char text[NI_MAXHOST])
{
    if (getnameinfo((const struct sockaddr *)&a->sa, a->n, text, NI_MAXHOST, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(text, NI_MAXHOST, "?");
    return text;
}

static json_t *answers_json(const struct dial_answers *answers)
{
    json_t *list = json_array();
    for (size_t i = 0; i < answers->count; i++) {
        char text[NI_MAXHOST], why[DIAL_WHY_MAX];
        json_t *row = json_object();
        json_set_str(row, "address", str_of(address_text(&answers->list[i], text)));
        if (dial_address_denied((const struct sockaddr *)&answers->list[i].sa, why))
            json_set_str(row, "denied", str_of(why));
        json_array_append_new(list, row);
    }
    return list;
}

static void print_answers(const struct dial_answers *answers, bool exempt)
{
    for (size_t i = 0; i < answers->count; i++) {
        char text[NI_MAXHOST], why[DIAL_WHY_MAX];
        bool denied = dial_address_denied((const struct sockaddr *)&answers->list[i].sa, why);
        printf("  %-40s %s%s%s\n", address_text(&answers->list[i], text),
               denied ? "denied: " : "public", denied ? why : "",
               denied && exempt ? ", but --allow-private names the host" : "");
    }
}

static void print_json(const char *url, const char *policy, const struct dial_answers *answers,
                       bool refused)
{
    AUTO_BUF text = {0};
    AUTO_JSON j = json_object();
    json_set_str(j, "url", str_of(url));
    json_set_str(j, "policy", str_of(policy));
    json_set_str(j, "verdict", refused ? STR("deny") : STR("allow"));
    json_object_set_new(j, "answers", answers_json(answers));
    if (refused) {
        json_set_str(j, "code", str_of(err_code()));
        json_set_str(j, "why", str_of(err_text()));
    }
    json_write(j, &text);
    printf("%s\n", text.p);
}

/* The verdict is dial_judge()'s, as dial_connect() would get it. */
static err judge(struct question *q, const char **out_shown, bool *out_exempt, struct arena *a)
{
    struct dial_url u;
    struct dial_answers judged;
    TRY(dial_parse(str_of(*out_shown), a, &u));
    *out_shown = dial_text(&u, a);
    *out_exempt = dial_exempt(q->guard, &u);
    dial_guard_set_resolver(q->guard, resolve_and_keep, q);
    if (dial_is_literal(u.host))
        TRY(dial_resolve(u.host, u.port, 0, -1, &q->answers));
    return dial_judge(q->guard, q->policy, &u, q->timeout_ms, -1, &judged);
}

static int explain(struct question *q)
{
    AUTO_ARENA a = arena_new();
    const char *shown = q->call->arguments[0];
    bool exempt = false;
    err e = judge(q, &shown, &exempt, a);
    if (option_flag(q->call, "json")) {
        print_json(shown, option_value(q->call, "policy"), &q->answers, e != 0);
        return e != 0;
    }
    printf("%s\n", shown);
    print_answers(&q->answers, exempt);
    if (e)
        printf("refused: %s\n", err_text());
    else
        printf("allowed%s\n", exempt ? ": --allow-private names it" : "");
    return e != 0;
}

static json_t *hops_json(const struct fetch_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->hop_count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:i}", "url", r->hops[i].url, "status", r->hops[i].status));
    return list;
}

static void print_fetched(const struct invocation *call, const struct fetch_result *r, err e)
{
    if (option_flag(call, "json")) {
        AUTO_BUF text = {0};
        AUTO_JSON j = json_pack("{s:o, s:s, s:I}", "hops", hops_json(r), "verdict",
                                e == E_FORBIDDEN || e == E_INVALID ? "deny" : "allow", "bytes",
                                (json_int_t)r->body.n);
        if (e) {
            json_set_str(j, "code", str_of(err_code()));
            json_set_str(j, "why", str_of(err_text()));
        }
        json_write(j, &text);
        printf("%s\n", text.p);
        return;
    }
    for (size_t i = 0; i < r->hop_count; i++)
        if (r->hops[i].status)
            printf("%d  %s\n", r->hops[i].status, r->hops[i].url);
        else
            printf("---  %s\n", r->hops[i].url);
    if (e)
        printf("%s: %s\n", e == E_FORBIDDEN || e == E_INVALID ? "refused" : "failed", err_text());
    else
        printf("allowed: %zu bytes%s of %s\n", r->body.n, r->truncated ? " and more" : "",
               r->content_type ? r->content_type : "no stated type");
}

static int follow(const struct question *q)
{
    AUTO_ARENA a = arena_new();
    struct fetch_result result = {0};
    struct fetch_options o = {.guard = q->guard,
                              .policy = q->policy,
                              .timeout_ms = q->timeout_ms,
                              .body_max = FETCH_MAX,
                              .wake_fd = -1};
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    err e = fetch_get(&o, str_of(q->call->arguments[0]), a, &result);
    print_fetched(q->call, &result, e);
    buf_done(&result.body);
    return e != 0;
}

static err read_options(const struct invocation *call, struct question *out)
{
    const char *policy = option_value(call, "policy"), *timeout = option_value(call, "timeout");
    uint64_t seconds;
    out->call = call;
    if (!guard_policy_find(policy, &out->policy))
        return fail(E_INVALID, "--policy is fetch, webhook or model, not %s", policy);
    if (!str_to_u64(str_of(timeout), &seconds) || seconds == 0 || seconds > TIMEOUT_MAX_S)
        return fail(E_INVALID, "--timeout is a number of seconds from 1 to %d", TIMEOUT_MAX_S);
    out->timeout_ms = (int64_t)seconds * 1000;
    return dial_guard_new(option_value(call, "allow-private"), &out->guard);
}

static int run_url(const struct invocation *call)
{
    struct question q = {0};
    if (read_options(call, &q) != 0) {
        command_fail(call);
        return 2;
    }
    int status = option_flag(call, "follow") ? follow(&q) : explain(&q);
    dial_guard_free(q.guard);
    return status;
}

static int run_vectors(const struct invocation *call, const char *path)
{
    AUTO_BUF text = {0};
    AUTO_JSON file = NULL;
    struct guard_tally tally;
    err e = fd_read_file(path, CASES_FILE_MAX, &text);
    if (!e)
        e = json_read(buf_str(&text), &file);
    if (e) {
        file = NULL;
        return command_fail(call);
    }
    if (guard_cases_run(file, stdout, &tally) != 0)
        return command_fail(call);
    printf("%zu passed, %zu failed\n", tally.passed, tally.failed);
    return tally.failed > 0;
}

static int run(const struct invocation *call)
{
    const char *vectors = option_value(call, "vectors");
    if ((vectors == NULL) == (call->argument_count == 0)) {
        fprintf(stderr, "pi-managed guard: give it a URL, or --vectors FILE\n");
        return 2;
    }
    return vectors ? run_vectors(call, vectors) : run_url(call);
}

const struct command guard_command = {
    .name = "guard",
    .arguments = "[URL]",
    .summary = "Tells whether the service would connect to a URL, and why.",
    .details =
        "The name is resolved here and now and all answers are judged; only --follow connects. "
        "Exit status:\n0 allowed (or all cases passed), 1 refused.",
    .options = options,
    .run = run,
};
