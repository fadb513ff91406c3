#include "cli/guard_cases.h"

#include "base/arena.h"
#include "broker/dial_ranges.h"

#include <string.h>

bool guard_policy_find(const char *name, enum dial_policy *out)
{
    static const struct {
        const char *name;
        enum dial_policy policy;
    } policies[] = {{"fetch", DIAL_FETCH}, {"webhook", DIAL_WEBHOOK}, {"model", DIAL_MODEL}};
    for (size_t i = 0; name && i < sizeof policies / sizeof *policies; i++)
        if (strcmp(policies[i].name, name) == 0) {
            *out = policies[i].policy;
            return true;
        }
    return false;
}

/* Names in a case are written as people write them; the guard asks for what they become. */
static const json_t *answers_for(const json_t *dns, const char *host)
{
    AUTO_ARENA a = arena_new();
    const char *name;
    json_t *answers;
    json_object_foreach((json_t *)(uintptr_t)dns, name, answers)
    {
        struct dial_url u;
        const char *url = arena_printf(a, "http://%s/", name);
        if (dial_parse(str_of(url), a, &u) == 0 && strcmp(u.host, host) == 0)
            return answers;
    }
    return NULL;
}

static err resolve_by_case(void *arg, const char *host, int port, struct dial_answers *out)
{
    const json_t *answers = answers_for(*(const json_t **)arg, host);
    if (json_array_size(answers) == 0 || json_array_size(answers) > DIAL_ANSWERS_MAX)
        return fail(E_UNAVAILABLE, "the name %s does not resolve in this case", host);
    out->count = 0;
    size_t i;
    json_t *address;
    json_array_foreach((json_t *)(uintptr_t)answers, i, address)
    {
        struct dial_answers one;
        const char *text = json_string_value(address);
        if (text == NULL || !dial_is_literal(text))
            return fail(E_INVALID, "an answer for %s is no address", host);
        TRY(dial_resolve(text, port, 0, -1, &one));
        out->list[out->count++] = one.list[0];
    }
    return 0;
}

static err judge_chain(const struct dial_guard *g, enum dial_policy policy, const json_t *c,
                       struct arena *a)
{
    struct dial_url at, next;
    struct dial_answers answers;
    const json_t *redirects = json_object_get(c, "redirects");
    TRY(dial_parse(json_get_str(c, "url"), a, &at));
    TRY(dial_judge(g, policy, &at, 0, -1, &answers));
    if (json_array_size(redirects) > DIAL_HOPS_MAX)
        return fail(E_FORBIDDEN, "more than %d redirects", DIAL_HOPS_MAX);
    for (size_t i = 0; i < json_array_size(redirects); i++) {
        const char *location = json_string_value(json_array_get(redirects, i));
        TRY(dial_join(&at, str_of(location), a, &next));
        TRY(dial_judge(g, policy, &next, 0, -1, &answers));
        at = next;
    }
    return 0;
}

static bool wanted(const json_t *c, bool allowed)
{
    const char *verdict = allowed ? "allow" : "deny";
    return str_is(json_get_str(c, "verdict"), verdict) ||
           str_is(json_get_str(c, "also_acceptable"), verdict);
}

static err run_case(const struct dial_guard *g, const json_t *c, FILE *report,
                    struct guard_tally *tally)
{
    AUTO_ARENA a = arena_new();
    enum dial_policy policy;
    if (!guard_policy_find(json_get_c(c, "policy"), &policy) || json_get_str(c, "url").p == NULL ||
        json_get_c(c, "verdict") == NULL)
        return fail(E_INVALID, "a case has no policy, url or verdict");
    bool allowed = judge_chain(g, policy, c, a) == 0;
    if (wanted(c, allowed)) {
        tally->passed++;
        return 0;
    }
    const char *id = json_get_c(c, "id");
    tally->failed++;
    fprintf(report, "%s %s: wanted %s, %s\n", id ? id : "?", json_get_c(c, "url"),
            json_get_c(c, "verdict"), allowed ? "it was allowed" : err_text());
    return 0;
}

err guard_cases_run(const json_t *file, FILE *report, struct guard_tally *out)
{
    const json_t *cases = json_is_array(file) ? file : json_object_get(file, "cases"), *dns = NULL;
    if (!json_is_array(cases))
        return fail(E_INVALID, "the file has no list of cases");
    struct dial_guard *g;
    struct guard_tally tally = {0};
    TRY(dial_guard_new(NULL, &g));
    dial_guard_set_resolver(g, resolve_by_case, &dns);
    err e = 0;
    for (size_t i = 0; !e && i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        dns = json_object_get(c, "dns");
        e = run_case(g, c, report, &tally);
    }
    dial_guard_free(g);
    if (!e)
        *out = tally;
    return e;
}
