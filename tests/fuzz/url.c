/* sources: src/base/json.c src/base/buf.c src/base/mem.c src/base/err.c src/base/str.c */
/* sources: src/base/arena.c src/base/clock.c src/base/fd.c */
/* Any text as a URL: refused, or taken apart into pieces that mean the same to every parser (a
   plain host, one port, a path without blanks); putting them together and reading that again
   changes nothing. Resolving is not part of it: literals are judged, names get no answer. */
#include "../../src/broker/dial.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static int resolve_literals(const char *host, const char *port, const struct addrinfo *hints,
                            struct addrinfo **out)
{
    return is_literal(host) ? getaddrinfo(host, port, hints, out) : EAI_NONAME;
}

static void check_parts(const struct dial_url *u)
{
    must(strcmp(u->scheme, "http") == 0 || strcmp(u->scheme, "https") == 0);
    must(u->port > 0 && u->port < 65536);
    must(u->host[0] && strpbrk(u->host, "/@\\?#%[] ") == NULL);
    must(u->path[0] == '/' && strpbrk(u->path, " \\#") == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    AUTO_ARENA a = arena_new();
    struct dial_url u, again;
    if (dial_parse((struct str){(const char *)data, n}, a, &u) != 0)
        return 0;
    check_parts(&u);
    bool v6 = strchr(u.host, ':') != NULL;
    const char *text =
        arena_printf(a, v6 ? "%s://[%s]:%d%s" : "%s://%s:%d%s", u.scheme, u.host, u.port, u.path);
    must(dial_parse(str_of(text), a, &again) == 0);
    must(dial_same_origin(&u, &again) && strcmp(u.path, again.path) == 0);

    struct dial_guard *g;
    struct addrinfo *answers;
    must(dial_guard_new(NULL, &g) == 0);
    g->resolve = resolve_literals;
    if (judge(g, DIAL_FETCH, &u, &answers) == 0) {
        for (const struct addrinfo *at = answers; at; at = at->ai_next)
            must(!denied_address(at->ai_addr));
        freeaddrinfo(answers);
    }
    dial_guard_free(g);
    return 0;
}
