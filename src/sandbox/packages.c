#include "sandbox/packages.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define NAME_BYTES_MAX 200

const char *const package_kinds[PACKAGE_KINDS] = {
    [PACKAGE_APT] = "apt", [PACKAGE_NPM] = "npm", [PACKAGE_PIP] = "pip"};

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* ---- names ---- */

/* Takes the longest run of `set` off the front; its length. */
static size_t take(struct str *s, const char *set)
{
    size_t n = 0;
    while (n < s->n && s->p[n] && strchr(set, s->p[n]))
        n++;
    s->p += n;
    s->n -= n;
    return n;
}

static bool take_text(struct str *s, const char *text)
{
    size_t n = strlen(text);
    if (s->n < n || memcmp(s->p, text, n) != 0)
        return false;
    s->p += n;
    s->n -= n;
    return true;
}

/* A first character of one set, then any of another. */
static bool take_word(struct str *s, const char *first, const char *more)
{
    if (s->n == 0 || s->p[0] == 0 || strchr(first, s->p[0]) == NULL)
        return false;
    take(s, more);
    return true;
}

/* jq, libc6:i386, jq=1.6-2.1. A final minus would mean removal. */
static bool is_apt(struct str s)
{
    if (s.n == 0 || s.p[s.n - 1] == '-')
        return false;
    if (!take_word(&s, LOWER DIGITS, LOWER DIGITS "+.-"))
        return false;
    if (take_text(&s, ":") && take(&s, LOWER DIGITS) == 0)
        return false;
    return s.n == 0 || (take_text(&s, "=") && take(&s, LOWER UPPER DIGITS "+.:~-") && s.n == 0);
}

/* typescript, @types/node@22.1.0, typescript@latest, typescript@^5 */
static bool is_npm(struct str s)
{
    const char *first = LOWER DIGITS "_~", *more = LOWER UPPER DIGITS "._~-";
    if (take_text(&s, "@") && !(take_word(&s, first, more) && take_text(&s, "/")))
        return false;
    if (!take_word(&s, first, more))
        return false;
    if (s.n == 0)
        return true;
    if (!take_text(&s, "@"))
        return false;
    take(&s, "^~");
    return take_word(&s, LOWER UPPER DIGITS, LOWER UPPER DIGITS ".+-") && s.n == 0;
}

/* requests, requests[socks]==2.32.3, numpy>=2,<3 is not: one condition */
static bool is_pip(struct str s)
{
    static const char *const conditions[] = {"==", ">=", "<=", "~=", "!="};
    if (!take_word(&s, LOWER UPPER DIGITS, LOWER UPPER DIGITS "._-"))
        return false;
    if (take_text(&s, "[") && !(take(&s, LOWER UPPER DIGITS "._,-") && take_text(&s, "]")))
        return false;
    if (s.n == 0)
        return true;
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        if (take_text(&s, conditions[i]))
            return take(&s, LOWER UPPER DIGITS "._*+!-") && s.n == 0;
    }
    return false;
}

err package_check(enum package_kind kind, struct str name)
{
    static const struct {
        bool (*is)(struct str name);
        const char *form;
    } kinds[PACKAGE_KINDS] = {
        [PACKAGE_APT] = {is_apt, "a Debian package name, with =VERSION if need be"},
        [PACKAGE_NPM] = {is_npm, "a name of the npm registry, with @VERSION if need be"},
        [PACKAGE_PIP] = {is_pip, "a name of the Python package index, with ==VERSION if need be"},
    };
    if (name.n > 0 && name.n <= NAME_BYTES_MAX && kinds[kind].is(name))
        return 0;
    return fail(E_INVALID, "packages.%s must hold %s", package_kinds[kind], kinds[kind].form);
}

/* ---- canonical text ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_sorted(enum package_kind kind, const char **names, size_t n, struct buf *out)
{
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            buf_printf(out, "%s:%s\n", package_kinds[kind], names[i]);
    }
}

static err add_kind(enum package_kind kind, const json_t *names, struct buf *out)
{
    if (names == NULL || json_is_null(names))
        return 0;
    size_t n = json_array_size(names);
    if (!json_is_array(names) || n > PACKAGES_EACH_MAX)
        return fail(E_INVALID, "packages.%s must be an array of at most %d names",
                    package_kinds[kind], PACKAGES_EACH_MAX);
    const char *sorted[PACKAGES_EACH_MAX];
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_array_get(names, i);
        sorted[i] = json_string_value(name);
        TRY(package_check(kind,
                          sorted[i] ? (struct str){sorted[i], json_string_length(name)} : STR("")));
    }
    if (n > 0)
        add_sorted(kind, sorted, n, out);
    return 0;
}

err packages_canonical(const json_t *packages, struct buf *out)
{
    for (int kind = 0; kind < PACKAGE_KINDS; kind++)
        TRY(add_kind((enum package_kind)kind, json_object_get(packages, package_kinds[kind]), out));
    if (out->n >= PACKAGES_TEXT_MAX)
        return fail(E_TOO_LARGE, "the names of all packages together are longer than %d bytes",
                    PACKAGES_TEXT_MAX - 1);
    return 0;
}

static bool kind_of(struct str word, enum package_kind *out)
{
    for (int kind = 0; kind < PACKAGE_KINDS; kind++) {
        if (str_is(word, package_kinds[kind])) {
            *out = (enum package_kind)kind;
            return true;
        }
    }
    return false;
}

err packages_each(struct str text, package_fn fn, void *arg)
{
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        const char *colon = end ? memchr(text.p, ':', (size_t)(end - text.p)) : NULL;
        enum package_kind kind;
        if (colon == NULL || !kind_of((struct str){text.p, (size_t)(colon - text.p)}, &kind))
            return fail(E_INVALID, "the list of packages is not a line a package");
        struct str name = {colon + 1, (size_t)(end - colon - 1)};
        TRY(package_check(kind, name));
        TRY(fn(arg, kind, name));
        text.n -= (size_t)(end + 1 - text.p);
        text.p = end + 1;
    }
    return 0;
}
