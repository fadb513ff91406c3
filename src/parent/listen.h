/* The listening socket, bound by the parent and handed to control. */
#ifndef PARENT_LISTEN_H
#define PARENT_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* What listen_open would refuse whatever the machine is like. */
err listen_check(const char *address, bool tls, bool insecure);
/* address: HOST:PORT, HOST an IPv4 or [IPv6] address or "localhost"; port 0 takes a free one.
   Refuses an address off loopback unless tls or insecure (E_FORBIDDEN). out_url:
   http(s)://HOST:PORT with the real port. */
err listen_open(const char *address, bool tls, bool insecure, int *out_fd, char *out_url,
                size_t cap);

#endif
