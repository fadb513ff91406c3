/* JSON for persons: a list as a table, one thing as a card. Any thread; standard output. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "base/json.h"

enum column_kind {
    COLUMN_TEXT,
    COLUMN_TIME,
    COLUMN_USD, /* nothing at all when absent; others show - */
    COLUMN_MS,  /* likewise */
    COLUMN_NUMBER,
    COLUMN_MODEL, /* {provider, id} */
};

struct column {
    const char *title;
    const char *path; /* member, or "usage.costUsd" */
    enum column_kind kind;
    size_t columns_max; /* of text; 0 = as long as it is */
};

/* Ended by .title NULL. Nothing at all for no rows. */
void table_print(const json_t *rows, const struct column *columns);
/* Every member of an object, a line each; what has lines itself is indented below its name. */
void table_card(const json_t *object);

#endif
