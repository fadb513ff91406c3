#include "broker/catalog.h"

#include "base/arena.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "broker/wire.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX (16u << 20)
#define ROW_MEMBERS 13

enum row_member { /* tools/catalog.mjs */
    ROW_PROVIDER,
    ROW_ID,
    ROW_NAME,
    ROW_API,
    ROW_BASE_URL,
    ROW_RATES, /* four */
    ROW_CONTEXT = ROW_RATES + 4,
    ROW_MAX_TOKENS,
    ROW_FLAGS,
    ROW_TIERS
};

enum row_flag {
    FLAG_REASONING = 1,
    FLAG_IMAGES = 2,
    FLAG_PRICE_KNOWN = 4
};

struct catalog {
    struct arena *arena; /* everything the models point to */
    struct catalog_model *models;
    size_t count, cap;
    const char **words; /* providers, wire APIs and addresses repeat: one copy of each */
    size_t word_count;
    const char *providers;
};

static const char *intern(struct catalog *c, const char *text)
{
    for (size_t i = c->word_count; i-- > 0;)
        if (strcmp(c->words[i], text) == 0)
            return c->words[i];
    c->words = mem_realloc(c->words, size_mul(c->word_count + 1, sizeof *c->words));
    return c->words[c->word_count++] = arena_strdup(c->arena, text);
}

static struct catalog_rates read_rates(const json_t *row, size_t at)
{
    return (struct catalog_rates){.input = json_number_value(json_array_get(row, at)),
                                  .output = json_number_value(json_array_get(row, at + 1)),
                                  .cache_read = json_number_value(json_array_get(row, at + 2)),
                                  .cache_write = json_number_value(json_array_get(row, at + 3))};
}

static void read_tiers(struct catalog *c, const json_t *tiers, struct catalog_price *out)
{
    size_t n = json_array_size(tiers);
    if (n == 0)
        return;
    struct catalog_tier *list = arena_alloc(c->arena, size_mul(n, sizeof *list));
    for (size_t i = 0; i < n; i++) {
        const json_t *tier = json_array_get(tiers, i);
        list[i].input_above = (int64_t)json_number_value(json_array_get(tier, 0));
        list[i].rates = read_rates(tier, 1);
    }
    out->tiers = list;
    out->tier_count = n;
}

/* Addresses with a {PLACEHOLDER} or none at all need settings that only Pi's own login has. */
static bool has_address(const char *base_url)
{
    return *base_url && strchr(base_url, '{') == NULL;
}

static err read_row(struct catalog *c, const json_t *row)
{
    const char *text[ROW_RATES];
    for (size_t i = 0; i < ROW_RATES; i++)
        if ((text[i] = json_string_value(json_array_get(row, i))) == NULL)
            return fail(E_INVALID, "member %zu is not a string", i);
    if (json_array_size(row) != ROW_MEMBERS)
        return fail(E_INVALID, "%zu members instead of %d", json_array_size(row), ROW_MEMBERS);
    struct catalog_rates rates = read_rates(row, ROW_RATES);
    int64_t flags = json_integer_value(json_array_get(row, ROW_FLAGS));
    bool usable = wire_find(text[ROW_API]) != NULL && has_address(text[ROW_BASE_URL]);
    struct catalog_model m = {
        .provider = intern(c, text[ROW_PROVIDER]),
        .id = arena_strdup(c->arena, text[ROW_ID]),
        .name = arena_strdup(c->arena, text[ROW_NAME]),
        .api = usable ? intern(c, text[ROW_API]) : NULL,
        .foreign_api = usable ? NULL : intern(c, text[ROW_API]),
        .base_url = intern(c, text[ROW_BASE_URL]),
        .price = {.input = rates.input,
                  .output = rates.output,
                  .cache_read = rates.cache_read,
                  .cache_write = rates.cache_write,
                  .known = flags & FLAG_PRICE_KNOWN},
        .context_window = json_integer_value(json_array_get(row, ROW_CONTEXT)),
        .max_tokens = json_integer_value(json_array_get(row, ROW_MAX_TOKENS)),
        .reasoning = flags & FLAG_REASONING,
        .images = flags & FLAG_IMAGES,
    };
    read_tiers(c, json_array_get(row, ROW_TIERS), &m.price);
    if (c->count == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 1024;
        c->models = mem_realloc(c->models, size_mul(c->cap, sizeof *c->models));
    }
    c->models[c->count++] = m;
    return 0;
}

/* One model a line: parsing row by row keeps the peak memory of control at one row. */
static err read_rows(struct catalog *c, struct str text)
{
    struct str line;
    for (size_t number = 1; str_split(&text, '\n', &line); number++) {
        if (line.n == 0 || line.p[0] != '[')
            continue;
        if (line.p[line.n - 1] == ',')
            line.n--;
        AUTO_JSON row = NULL;
        err e = json_read(line, &row);
        if (!e)
            e = read_row(c, row);
        if (e) {
            struct err_slot why;
            err_save(&why);
            return fail(E_INVALID, "line %zu: %s", number, why.text);
        }
    }
    return c->count ? 0 : fail(E_INVALID, "it holds no models");
}

static int by_provider_and_id(const void *a, const void *b)
{
    const struct catalog_model *x = a, *y = b;
    int order = strcmp(x->provider, y->provider);
    return order ? order : strcmp(x->id, y->id);
}

static void list_providers(struct catalog *c)
{
    AUTO_BUF list = {0};
    const char *last = "";
    for (size_t i = 0; i < c->count; i++) {
        if (c->models[i].api == NULL || strcmp(c->models[i].provider, last) == 0)
            continue;
        last = c->models[i].provider;
        buf_printf(&list, "%s%s", list.n ? ", " : "", last);
    }
    c->providers = arena_strdup(c->arena, list.p ? list.p : "");
}

err catalog_load(const char *runtime_dir, struct catalog **out)
{
    AUTO_ARENA a = arena_new();
    const char *path = arena_printf(a, "%s/catalog.json", runtime_dir);
    AUTO_BUF file = {0};
    TRY(fd_read_file(path, FILE_MAX, &file));
    struct catalog *c = mem_alloc(sizeof *c);
    c->arena = arena_new();
    err e = read_rows(c, buf_str(&file));
    if (e) {
        struct err_slot why;
        err_save(&why);
        catalog_free(c);
        return fail(E_INVALID, "%s is damaged (%s): run make again", path, why.text);
    }
    qsort(c->models, c->count, sizeof *c->models, by_provider_and_id);
    list_providers(c);
    mem_free(c->words);
    c->words = NULL;
    *out = c;
    return 0;
}

void catalog_free(struct catalog *c)
{
    if (c == NULL)
        return;
    arena_free(c->arena);
    mem_free(c->models);
    mem_free(c->words);
    mem_free(c);
}

const struct catalog_model *catalog_find(const struct catalog *c, const char *provider,
                                         const char *id)
{
    struct catalog_model key = {.provider = provider, .id = id};
    return bsearch(&key, c->models, c->count, sizeof *c->models, by_provider_and_id);
}

const struct catalog_model *catalog_any(const struct catalog *c, const char *provider)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->models[i].api && strcmp(c->models[i].provider, provider) == 0)
            return &c->models[i];
    return NULL;
}

bool catalog_has_provider(const struct catalog *c, const char *provider)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->models[i].provider, provider) == 0)
            return true;
    return false;
}

const char *catalog_providers(const struct catalog *c)
{
    return c->providers;
}

struct catalog_rates catalog_rates_for(const struct catalog_price *p, int64_t input_tokens)
{
    struct catalog_rates rates = {p->input, p->output, p->cache_read, p->cache_write};
    int64_t matched = -1;
    for (size_t i = 0; i < p->tier_count; i++) {
        if (input_tokens > p->tiers[i].input_above && p->tiers[i].input_above > matched) {
            rates = p->tiers[i].rates;
            matched = p->tiers[i].input_above;
        }
    }
    return rates;
}
