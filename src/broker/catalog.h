/* Pi's model catalogue: providers, models, wire API, upstream origin, prices, extracted from the
   installed Pi at build (tools/catalog.mjs → build/runtime/catalog.json). Read-only after load; any
   thread. */
#ifndef BROKER_CATALOG_H
#define BROKER_CATALOG_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct catalog;

struct catalog_rates { /* USD per million tokens */
    double input, output, cache_read, cache_write;
};

/* Rates for a request with more input tokens (cached ones included) than this. */
struct catalog_tier {
    int64_t input_above;
    struct catalog_rates rates;
};

struct catalog_price {
    double input, output, cache_read, cache_write; /* USD per million tokens, below all tiers */
    bool known; /* false: Pi's catalogue says 0 without saying free (subscriptions, routers) */
    const struct catalog_tier *tiers;
    size_t tier_count;
};

struct catalog_model {
    const char *provider, *id, *name;
    const char *api; /* wire API, NULL if none of the four (R47) or no upstream address is known */
    const char *foreign_api; /* when api is NULL: what Pi would speak, for the message */
    const char *base_url;    /* upstream, with path prefix */
    struct catalog_price price;
    int64_t context_window, max_tokens;
    bool reasoning, images;
};

/* Reads <runtime_dir>/catalog.json. E_NOT_FOUND when the build left none. */
err catalog_load(const char *runtime_dir, struct catalog **out);
void catalog_free(struct catalog *c);
/* NULL if there is no such model. */
const struct catalog_model *catalog_find(const struct catalog *c, const char *provider,
                                         const char *id);
/* Some model of the provider that the gateway can reach; NULL if there is none. */
const struct catalog_model *catalog_any(const struct catalog *c, const char *provider);
bool catalog_has_provider(const struct catalog *c, const char *provider);
/* "anthropic, google, openai, …": providers with at least one usable model; borrowed. */
const char *catalog_providers(const struct catalog *c);
/* The rates that hold for a request with so many input tokens, cached ones included (Pi's rule). */
struct catalog_rates catalog_rates_for(const struct catalog_price *p, int64_t input_tokens);

#endif
