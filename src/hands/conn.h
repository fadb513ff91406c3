/* One conversation: reads the opening frame of a connection and serves it to its end. */
#ifndef HANDS_CONN_H
#define HANDS_CONN_H

/* Call once, before the first connection: makes the boot id that HELLO tells. */
void conn_init(void);
/* Serves and closes the socket. The connection's own thread. */
void conn_serve(int take_fd);
/* Says ERROR busy and closes: no thread could be had for it. */
void conn_refuse(int take_fd);

#endif
