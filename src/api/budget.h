/* A session's budget in requests (R27). */
#ifndef API_BUDGET_H
#define API_BUDGET_H

#include "api/fields.h"

struct ctx;

extern const struct field budget_fields[];
void budget_check(struct fields *f, const json_t *value);

/* The row of a table of fields. */
#define BUDGET_FIELD                                                                               \
    {                                                                                              \
        .name = "budget", .kinds = FIELD_OBJECT, .nullable = true, .members = budget_fields,       \
        .check = budget_check                                                                      \
    }

/* A limit in dollars needs a price: E_INVALID (price_unknown). */
err budget_check_price(struct ctx *ctx, const char *agent_json);
/* What the body says, without members that are null: a new reference; JSON null = no budget. NULL
   when it says nothing. */
json_t *budget_of(struct ctx *ctx);
/* The same as text in the arena; NULL for none. */
const char *budget_text(struct ctx *ctx);

#endif
