/* Replies that last: event streams and terminals. A key that is revoked takes effect on them, too
   (R14): within a second they end, whichever process revoked it. Any thread. */
#ifndef API_LASTING_H
#define API_LASTING_H

#include "base/clock.h"
#include "base/id.h"

#include <stdbool.h>

struct db;
struct lastings;

/* Part of whoever lasts; zero at first. */
struct lasting {
    struct lasting *next, **at; /* in the list; at NULL: in none */
    char key_id[ID_MAX];
    void (*end)(void *arg); /* on another thread, with the list's lock held: must not block */
    void *arg;
};

struct lastings *lastings_new(struct db *db, const struct clock *clock);
/* Ends the thread that looks; those in the list are left alone. NULL-safe. */
void lastings_stop(struct lastings *l);

void lasting_add(struct lastings *l, struct lasting *one, const char *key_id,
                 void (*end)(void *arg), void *arg);
/* Nothing calls `end` afterwards. Harmless for one that is in no list. */
void lasting_remove(struct lastings *l, struct lasting *one);
/* Ends those of this key now; after its revocation was committed. */
void lastings_end(struct lastings *l, const char *key_id);

#endif
