/* Pi's model catalogue: providers, models, wire API, upstream origin, prices, extracted from the installed
   Pi at build (tools/catalog.mjs → build/runtime/catalog.json). Read-only after load; any thread. */
#ifndef BROKER_CATALOG_H
#define BROKER_CATALOG_H

#include "base/err.h"
#include "base/json.h"

struct catalog;

struct catalog_price { /* USD per million tokens */
    double input, output, cache_read, cache_write;
    bool known;
};

struct catalog_model {
    const char *provider, *id, *name;
    const char *api;      /* wire API, NULL if none of the four (R47) */
    const char *base_url; /* upstream, with path prefix */
    struct catalog_price price;
    int64_t context_window, max_tokens;
    bool reasoning, images;
};

err catalog_load(const char *runtime_dir, struct catalog **out);
void catalog_free(struct catalog *c);
/* NULL if there is no such model. */
const struct catalog_model *catalog_find(const struct catalog *c, const char *provider,
                                         const char *id);
bool catalog_has_provider(const struct catalog *c, const char *provider);
/* "anthropic, google, openai, …": providers with at least one usable model; borrowed. */
const char *catalog_providers(const struct catalog *c);

#endif
