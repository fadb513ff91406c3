/* What sessions.c tells the streams of stream.c. */
#ifndef API_STREAM_H
#define API_STREAM_H

struct service;

/* Ends every stream of the session with a stream-only session.deleted frame. After its row was
   marked. Any thread. */
void stream_tell_deleted(const struct service *service, const char *session);

#endif
