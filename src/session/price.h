/* What a model's tokens cost (§9.7, R27): the agent's own price, else Pi's catalogue. Pure. */
#ifndef SESSION_PRICE_H
#define SESSION_PRICE_H

#include "broker/catalog.h"
#include "session/store.h"

/* `model`: of an agent's definition. False: nobody knows the price. */
bool price_find(const struct catalog *catalog, const json_t *model, struct catalog_price *out);
/* USD of a usage; the rates that hold for it go into out_rates, an object. */
double price_usage(const struct catalog_price *price, const struct session_usage *usage,
                   json_t *out_rates);

#endif
