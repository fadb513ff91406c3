/* sources: src/broker/dial.c src/broker/dial_url.c src/broker/dial_ranges.c src/broker/dial_resolve.c */
/* sources: src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c src/base/err.c src/base/str.c */
/* sources: src/base/arena.c src/base/clock.c src/base/fd.c src/base/lock.c */
/* Any text as a URL: refused, or taken apart into pieces that mean the same to every parser (a
   plain host, one port, a path without blanks); putting them together and reading that again
   changes nothing. As a redirect's Location too. Literals are judged, names get no answer. */
#include "base/arena.h"
#include "broker/dial.h"
#include "broker/dial_ranges.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static err no_answer(void *arg, const char *host, int port, struct dial_answers *out)
{
    (void)arg;
    (void)port;
    (void)out;
    return fail(E_UNAVAILABLE, "%s", host);
}

static void check_parts(const struct dial_url *u)
{
    must(strcmp(u->scheme, "http") == 0 || strcmp(u->scheme, "https") == 0);
    must(u->port > 0 && u->port < 65536);
    must(u->host[0] && strpbrk(u->host, "/@\\?#%[] ") == NULL);
    must(u->path[0] == '/' && strpbrk(u->path, " \\#") == NULL);
}

static void check_again(const struct dial_url *u, struct arena *a)
{
    struct dial_url again;
    check_parts(u);
    must(dial_parse(str_of(dial_text(u, a)), a, &again) == 0);
    must(dial_same_origin(u, &again) && strcmp(u->path, again.path) == 0);
}

static void judge(const struct dial_url *u)
{
    struct dial_guard *g;
    struct dial_answers answers;
    must(dial_guard_new(NULL, &g) == 0);
    dial_guard_set_resolver(g, no_answer, NULL);
    if (dial_judge(g, DIAL_FETCH, u, 0, -1, &answers) == 0)
        for (size_t i = 0; i < answers.count; i++)
            must(!dial_address_denied((struct sockaddr *)&answers.list[i].sa, NULL));
    dial_guard_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    AUTO_ARENA a = arena_new();
    struct str text = {(const char *)data, n};
    struct dial_url u, base;
    must(dial_parse(STR("https://base.example/a/b?c"), a, &base) == 0);
    if (dial_join(&base, text, a, &u) == 0)
        check_again(&u, a);
    if (dial_parse(text, a, &u) == 0) {
        check_again(&u, a);
        judge(&u);
    }
    return 0;
}
