/* A connection to the service that leaves HTTP (Connection: Upgrade), as a socket of our own: a
   thread carries its bytes to and from the service, through TLS where there is. */
#ifndef CLI_TUNNEL_H
#define CLI_TUNNEL_H

#include "cli/http_client.h"

struct tunnel;

/* POST base_url + path. The service's own words when it does not want to. */
err tunnel_open(struct http_client *c, const char *path, const char *protocol, struct tunnel **out);
int tunnel_fd(const struct tunnel *t); /* ends when the service's side does */
void tunnel_close(struct tunnel *t);   /* NULL-safe */

#endif
