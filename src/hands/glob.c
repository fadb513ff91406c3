#include "hands/glob.h"

#include "base/mem.h"

#include <stdio.h>
#include <utf8proc.h>

#define GLOB_MAGIC 0x910b910bu
#define DEPTH_MAX 64 /* of {…} in {…} */

enum op {
    OP_SET,   /* one byte of a set, then `next` */
    OP_SPLIT, /* both ways, without a byte */
    OP_MATCH
};

struct state {
    uint8_t op;
    uint32_t next, other; /* indices */
    uint32_t set;         /* index */
};

struct set {
    uint64_t bits[4];
};

struct glob {
    uint32_t magic;
    struct state *states;
    uint32_t n, cap;
    struct set *sets;
    uint32_t sets_n, sets_cap;
    uint32_t start;
    bool has_capital, ignore_case;
};

/* Parsing into a tree of tokens, since ** looks back at the token before it. */
enum kind {
    TOKEN_LITERAL,
    TOKEN_ANY,
    TOKEN_STAR,
    TOKEN_PREFIX, /* two stars and a slash, at the start */
    TOKEN_SUFFIX, /* a slash and two stars, at the end */
    TOKEN_MIDDLE, /* the same between two slashes */
    TOKEN_CLASS,
    TOKEN_ALTERNATIVES
};

struct token {
    uint8_t kind;
    struct str literal;      /* bytes of one character */
    struct set set;          /* of a class, */
    bool negated;            /* which may mean every other byte */
    struct tokens *branches; /* of alternatives */
    size_t branches_n;
};

struct tokens {
    struct token *items;
    size_t n, cap;
};

struct parser {
    struct str glob;
    size_t at;
    struct str prev, cur; /* characters; p NULL before the first */
    struct tokens *branches;
    size_t branches_n, branches_cap;
    size_t opened[DEPTH_MAX]; /* where each {…} being read began in branches */
    size_t opened_n;
    bool open_class_literal, class_never_closes, has_capital;
    struct buf *why;
};

static void tokens_done(struct tokens *t)
{
    for (size_t i = 0; i < t->n; i++) {
        for (size_t k = 0; k < t->items[i].branches_n; k++)
            tokens_done(&t->items[i].branches[k]);
        mem_free(t->items[i].branches);
    }
    mem_free(t->items);
}

static void set_add(struct set *s, unsigned from, unsigned to)
{
    for (unsigned b = from; b <= to; b++)
        s->bits[b >> 6] |= 1ull << (b & 63);
}

static bool set_has(const struct set *s, unsigned char b)
{
    return s->bits[b >> 6] >> (b & 63) & 1;
}

static struct set set_inverse(struct set s)
{
    for (int i = 0; i < 4; i++)
        s.bits[i] = ~s.bits[i];
    return s;
}

/* With both cases of each ASCII letter it holds. */
static struct set set_fold(struct set s)
{
    for (unsigned c = 'a'; c <= 'z'; c++)
        if (set_has(&s, (unsigned char)c) || set_has(&s, (unsigned char)(c - 32))) {
            set_add(&s, c, c);
            set_add(&s, c - 32, c - 32);
        }
    return s;
}

static struct str peek(const struct parser *p)
{
    if (p->at >= p->glob.n)
        return (struct str){0};
    unsigned char c = (unsigned char)p->glob.p[p->at];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    n = n < p->glob.n - p->at ? n : p->glob.n - p->at;
    return (struct str){p->glob.p + p->at, n};
}

static struct str bump(struct parser *p)
{
    p->prev = p->cur;
    p->cur = peek(p);
    p->at += p->cur.n;
    return p->cur;
}

static bool is_char(struct str s, char c)
{
    return s.n == 1 && s.p[0] == c;
}

static bool bad(struct parser *p, const char *what)
{
    if (p->why) {
        buf_add_c(p->why, "error parsing glob '");
        buf_add_str(p->why, p->glob);
        buf_printf(p->why, "': %s", what);
    }
    return false;
}

static struct tokens *branch(struct parser *p)
{
    return &p->branches[p->branches_n - 1];
}

static void push(struct parser *p, struct token t)
{
    struct tokens *b = branch(p);
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 8;
        b->items = mem_realloc(b->items, size_mul(b->cap, sizeof *b->items));
    }
    b->items[b->n++] = t;
}

static void push_kind(struct parser *p, enum kind kind)
{
    push(p, (struct token){.kind = (uint8_t)kind});
}

static void push_literal(struct parser *p, struct str c)
{
    utf8proc_int32_t code;
    if (utf8proc_iterate((const utf8proc_uint8_t *)c.p, (utf8proc_ssize_t)c.n, &code) > 0)
        p->has_capital |= utf8proc_category(code) == UTF8PROC_CATEGORY_LU;
    push(p, (struct token){.kind = TOKEN_LITERAL, .literal = c});
}

static void push_branch(struct parser *p)
{
    if (p->branches_n == p->branches_cap) {
        p->branches_cap = p->branches_cap ? p->branches_cap * 2 : 4;
        p->branches = mem_realloc(p->branches, size_mul(p->branches_cap, sizeof *p->branches));
    }
    p->branches[p->branches_n++] = (struct tokens){0};
}

static bool open_alternatives(struct parser *p)
{
    if (p->opened_n == DEPTH_MAX)
        return bad(p, "nested alternate groups are not allowed this deep");
    p->opened[p->opened_n++] = p->branches_n;
    push_branch(p);
    return true;
}

static bool close_alternatives(struct parser *p)
{
    if (p->opened_n == 0)
        return bad(p, "unopened alternate group; missing '{' (maybe escape '}' with '[}]'?)");
    size_t from = p->opened[--p->opened_n], n = p->branches_n - from;
    struct token t = {.kind = TOKEN_ALTERNATIVES, .branches_n = n};
    t.branches = mem_copy(&p->branches[from], n * sizeof *p->branches);
    p->branches_n = from;
    push(p, t);
    return true;
}

static void two_stars(struct parser *p)
{
    push_kind(p, TOKEN_STAR);
    push_kind(p, TOKEN_STAR);
}

/* ** behind other tokens of its branch. */
static void parse_later_stars(struct parser *p, struct str prev)
{
    bool after_branch = p->branches_n > 1 && (is_char(prev, ',') || is_char(prev, '{'));
    if (!is_char(prev, '/') && !after_branch) {
        two_stars(p);
        return;
    }
    struct str next = peek(p);
    bool suffix =
        next.p == NULL || (p->branches_n >= 2 && (is_char(next, ',') || is_char(next, '}')));
    if (!suffix && !is_char(next, '/')) {
        two_stars(p);
        return;
    }
    if (next.p == NULL || is_char(next, '/'))
        bump(p);
    struct tokens *b = branch(p);
    struct token *last = &b->items[b->n - 1]; /* the slash, most often: ** takes it in */
    if (last->kind == TOKEN_PREFIX || last->kind == TOKEN_SUFFIX)
        return;
    *last = (struct token){.kind = suffix ? TOKEN_SUFFIX : TOKEN_MIDDLE};
}

static void parse_star(struct parser *p)
{
    struct str prev = p->prev;
    if (!is_char(peek(p), '*')) {
        push_kind(p, TOKEN_STAR);
        return;
    }
    bump(p);
    if (branch(p)->n > 0) {
        parse_later_stars(p, prev);
        return;
    }
    struct str next = peek(p);
    if (next.p && !is_char(next, '/')) {
        two_stars(p);
        return;
    }
    push_kind(p, TOKEN_PREFIX);
    bump(p);
}

/* What a range of characters is in terms of bytes: the regular expression behind it lists their
   bytes one by one, with the range between the neighbours. */
static bool add_range(struct parser *p, struct set *s, struct str from, struct str to)
{
    bool single = from.p == to.p;
    unsigned char last = (unsigned char)from.p[from.n - 1], first = (unsigned char)to.p[0];
    int order = memcmp(from.p, to.p, from.n < to.n ? from.n : to.n);
    if (!single && order > 0) {
        char what[64];
        snprintf(what, sizeof what, "invalid range; '%.*s' > '%.*s'", STR_ARG(from), STR_ARG(to));
        return bad(p, what);
    }
    for (size_t i = 0; i < from.n; i++)
        set_add(s, (unsigned char)from.p[i], (unsigned char)from.p[i]);
    for (size_t i = 0; i < to.n; i++)
        set_add(s, (unsigned char)to.p[i], (unsigned char)to.p[i]);
    if (!single && last <= first)
        set_add(s, last, first);
    return true;
}

/* A capital as fd sees it: at an end of one of the set's ranges. */
static bool set_shows_capital(const struct set *s)
{
    for (unsigned b = 0; b < 256; b++) {
        bool capital = (b >= 'A' && b <= 'Z') || (b >= 0xc0 && b <= 0xde && b != 0xd7);
        bool edge = b == 0 || b == 255 || !set_has(s, (unsigned char)(b - 1)) ||
                    !set_has(s, (unsigned char)(b + 1));
        if (capital && edge && set_has(s, (unsigned char)b))
            return true;
    }
    return false;
}

struct class_reader {
    struct set set;
    struct str pending; /* the last character, not added yet; p NULL: none */
    bool in_range;
};

static bool add_pending(struct parser *p, struct class_reader *r)
{
    return r->pending.p == NULL || add_range(p, &r->set, r->pending, r->pending);
}

static bool class_character(struct parser *p, struct class_reader *r, struct str c)
{
    if (r->in_range) {
        bool ok = add_range(p, &r->set, r->pending, c);
        /* The end of a range may begin the next one, as in [a-c-e]: then c is the lower end. */
        r->pending = c;
        r->in_range = false;
        return ok;
    }
    bool ok = add_pending(p, r);
    r->pending = c;
    return ok;
}

static bool parse_class(struct parser *p)
{
    struct parser saved = *p;
    struct class_reader r = {0};
    bool negated = is_char(peek(p), '!') || is_char(peek(p), '^');
    if (negated)
        bump(p);
    for (bool first = true;; first = false) {
        struct str c = bump(p);
        if (c.p == NULL && !p->open_class_literal)
            return bad(p, "unclosed character class; missing ']'");
        if (c.p == NULL) {
            p->at = saved.at;
            p->prev = saved.prev;
            p->cur = saved.cur;
            p->class_never_closes = true;
            push_literal(p, p->cur);
            return true;
        }
        if (is_char(c, ']') && !first)
            break;
        if (is_char(c, '-') && !first && !r.in_range)
            r.in_range = true;
        else if (!class_character(p, &r, c))
            return false;
    }
    if (r.in_range)
        set_add(&r.set, '-', '-');
    if (!add_pending(p, &r))
        return false;
    struct set shown = negated ? set_inverse(r.set) : r.set;
    p->has_capital |= set_shows_capital(&shown);
    push(p, (struct token){.kind = TOKEN_CLASS, .set = r.set, .negated = negated});
    return true;
}

static bool parse_one(struct parser *p, struct str c)
{
    switch (c.n == 1 ? c.p[0] : 0) {
    case '?':
        push_kind(p, TOKEN_ANY);
        return true;
    case '*':
        parse_star(p);
        return true;
    case '[':
        if (!p->class_never_closes)
            return parse_class(p);
        break;
    case '{':
        return open_alternatives(p);
    case '}':
        return close_alternatives(p);
    case ',':
        if (p->opened_n > 0) {
            push_branch(p);
            return true;
        }
        break;
    case '\\':
        c = bump(p);
        if (c.p == NULL)
            return bad(p, "dangling '\\'");
        break;
    default:
        break;
    }
    push_literal(p, c);
    return true;
}

static bool parse(struct parser *p)
{
    push_branch(p);
    for (struct str c = bump(p); c.p; c = bump(p))
        if (!parse_one(p, c))
            return false;
    if (p->opened_n > 0)
        return bad(p, "unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)");
    return true;
}

/* Building the automaton from its end: each piece is told which state follows it. */
static uint32_t add_state(struct glob *g, struct state s)
{
    if (g->n == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 64;
        g->states = mem_realloc(g->states, size_mul(g->cap, sizeof *g->states));
    }
    g->states[g->n] = s;
    return g->n++;
}

static uint32_t add_set(struct glob *g, struct set set, uint32_t next)
{
    if (g->sets_n == g->sets_cap) {
        g->sets_cap = g->sets_cap ? g->sets_cap * 2 : 32;
        g->sets = mem_realloc(g->sets, size_mul(g->sets_cap, sizeof *g->sets));
    }
    g->sets[g->sets_n] = set;
    return add_state(g, (struct state){.op = OP_SET, .set = g->sets_n++, .next = next});
}

static uint32_t add_byte(struct glob *g, unsigned char b, uint32_t next)
{
    struct set set = {0};
    set_add(&set, b, b);
    return add_set(g, g->ignore_case ? set_fold(set) : set, next);
}

static uint32_t add_split(struct glob *g, uint32_t a, uint32_t b)
{
    return add_state(g, (struct state){.op = OP_SPLIT, .next = a, .other = b});
}

static struct set all_bytes(bool slash)
{
    struct set set = {0};
    set_add(&set, 0, 255);
    if (!slash)
        set.bits['/' >> 6] &= ~(1ull << ('/' & 63));
    return set;
}

/* Any number of bytes. */
static uint32_t add_loop(struct glob *g, bool slash, uint32_t next)
{
    uint32_t split = add_split(g, 0, next);
    uint32_t byte = add_set(g, all_bytes(slash), split);
    g->states[split].next = byte;
    return split;
}

/* What is not in [^a] is neither a nor, when case does not count, A. */
static uint32_t add_class(struct glob *g, const struct token *t, uint32_t next)
{
    struct set set = g->ignore_case ? set_fold(t->set) : t->set;
    return add_set(g, t->negated ? set_inverse(set) : set, next);
}

static uint32_t add_tokens(struct glob *g, const struct tokens *t, uint32_t next);

static uint32_t add_alternatives(struct glob *g, const struct token *t, uint32_t next)
{
    uint32_t start = UINT32_MAX;
    for (size_t i = t->branches_n; i-- > 0;) {
        if (t->branches[i].n == 0)
            continue; /* an empty alternative counts for nothing */
        uint32_t one = add_tokens(g, &t->branches[i], next);
        start = start == UINT32_MAX ? one : add_split(g, one, start);
    }
    return start == UINT32_MAX ? next : start;
}

static uint32_t add_token(struct glob *g, const struct token *t, uint32_t next)
{
    switch ((enum kind)t->kind) {
    case TOKEN_LITERAL:
        for (size_t i = t->literal.n; i-- > 0;)
            next = add_byte(g, (unsigned char)t->literal.p[i], next);
        return next;
    case TOKEN_ANY:
        return add_set(g, all_bytes(false), next);
    case TOKEN_STAR:
        return add_loop(g, false, next);
    case TOKEN_PREFIX: /* nothing, or anything up to a slash */
        return add_split(g, next, add_loop(g, true, add_byte(g, '/', next)));
    case TOKEN_SUFFIX:
        return add_byte(g, '/', add_loop(g, true, next));
    case TOKEN_MIDDLE: /* a slash, or anything between two */
        return add_byte(g, '/', add_split(g, next, add_loop(g, true, add_byte(g, '/', next))));
    case TOKEN_CLASS:
        return add_class(g, t, next);
    case TOKEN_ALTERNATIVES:
        return add_alternatives(g, t, next);
    }
    return next;
}

static uint32_t add_tokens(struct glob *g, const struct tokens *t, uint32_t next)
{
    for (size_t i = t->n; i-- > 0;)
        next = add_token(g, &t->items[i], next);
    return next;
}

static struct glob *build(const struct parser *p, bool ignore_case)
{
    struct glob *g = mem_alloc(sizeof *g);
    g->magic = GLOB_MAGIC;
    g->has_capital = p->has_capital;
    g->ignore_case = ignore_case;
    uint32_t match = add_state(g, (struct state){.op = OP_MATCH});
    const struct tokens *t = &p->branches[0];
    bool everything = t->n == 1 && t->items[0].kind == TOKEN_PREFIX;
    g->start = everything ? add_loop(g, true, match) : add_tokens(g, t, match);
    return g;
}

struct glob *glob_new(struct str pattern, struct glob_options options, struct buf *why)
{
    struct parser p = {
        .glob = pattern, .open_class_literal = options.open_class_literal, .why = why};
    struct glob *g = NULL;
    /* Every character makes at most three states; ** at most five. */
    if (pattern.n > GLOB_STATES_MAX / 8)
        bad(&p, "it is too long");
    else if (parse(&p))
        g = build(&p, options.ignore_case);
    for (size_t i = 0; i < p.branches_n; i++)
        tokens_done(&p.branches[i]);
    mem_free(p.branches);
    return g;
}

void glob_free(struct glob *g)
{
    if (g == NULL)
        return;
    CHECK(g, GLOB_MAGIC);
    g->magic = 0;
    mem_free(g->states);
    mem_free(g->sets);
    mem_free(g);
}

bool glob_has_capital(const struct glob *g)
{
    return g->has_capital;
}

/* The states that are alive; `at` says in which step a state was last added. */
struct alive {
    uint32_t *list, n;
    uint32_t *at;
    uint32_t *pending; /* stack of add */
};

static void add_alive(const struct glob *g, struct alive *a, uint32_t state, uint32_t step)
{
    uint32_t n = 0;
    a->pending[n++] = state;
    while (n > 0) {
        uint32_t s = a->pending[--n];
        if (a->at[s] == step)
            continue;
        a->at[s] = step;
        if (g->states[s].op == OP_SPLIT) {
            a->pending[n++] = g->states[s].other;
            a->pending[n++] = g->states[s].next;
        } else {
            a->list[a->n++] = s;
        }
    }
}

bool glob_matches(const struct glob *g, struct str text)
{
    CHECK(g, GLOB_MAGIC);
    uint32_t *memory = mem_alloc(size_mul(g->n, 6 * sizeof *memory));
    struct alive now = {.list = memory, .at = memory + 2 * g->n, .pending = memory + 3 * g->n};
    struct alive next = {.list = memory + g->n, .at = now.at, .pending = now.pending};
    add_alive(g, &now, g->start, 1);
    for (size_t i = 0; i < text.n && now.n > 0; i++) {
        next.n = 0;
        for (uint32_t k = 0; k < now.n; k++) {
            const struct state *s = &g->states[now.list[k]];
            if (s->op == OP_SET && set_has(&g->sets[s->set], (unsigned char)text.p[i]))
                add_alive(g, &next, s->next, (uint32_t)i + 2);
        }
        uint32_t *list = now.list;
        now.list = next.list;
        now.n = next.n;
        next.list = list;
    }
    bool matched = false;
    for (uint32_t k = 0; k < now.n; k++)
        matched |= g->states[now.list[k]].op == OP_MATCH;
    mem_free(memory);
    return matched;
}
