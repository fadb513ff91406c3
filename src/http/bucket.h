/* Token buckets, one a tenant: how many requests it may make (§27.3, requestsPerMinute). A bucket
   holds what ten seconds give, at least ten tokens and at most a minute's, and starts full. Counted
   in this process. Any thread. */
#ifndef HTTP_BUCKET_H
#define HTTP_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct buckets;

struct buckets *buckets_new(void);
void buckets_free(struct buckets *b); /* NULL-safe */
/* Takes a token. False: *out_wait_ms says when there will be one (INT64_MAX: never). per_minute may
   differ from call to call: the bucket follows. */
bool buckets_take(struct buckets *b, const char *tenant, double per_minute, int64_t now_ms,
                  int64_t *out_wait_ms);
unsigned buckets_count(struct buckets *b); /* that are not full, about */

#endif
