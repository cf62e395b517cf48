/* others.c: the tables of tools and of system management. Loaders up to 1.8 refuse a driver that does not have them;
 * no function in these is called (sysman.c has the others). */
#include <level_zero/ze_api.h>

#define TABLE(NAME)                                                                                              \
  __attribute__((visibility("default"))) ze_result_t NAME##ProcAddrTable(ze_api_version_t version, void *table); \
  ze_result_t NAME##ProcAddrTable(ze_api_version_t version, void *table) {                                       \
    (void)version, (void)table;                                                                                  \
    return ZE_RESULT_SUCCESS;                                                                                    \
  }

TABLE(zetGetDevice)
TABLE(zetGetContext)
TABLE(zetGetCommandList)
TABLE(zetGetModule)
TABLE(zetGetKernel)
TABLE(zetGetMetricGroup)
TABLE(zetGetMetricGroupExp)
TABLE(zetGetMetric)
TABLE(zetGetMetricStreamer)
TABLE(zetGetMetricQueryPool)
TABLE(zetGetMetricQuery)
TABLE(zetGetTracerExp)
TABLE(zetGetDebug)
TABLE(zesGetScheduler)
TABLE(zesGetPerformanceFactor)
TABLE(zesGetStandby)
TABLE(zesGetFabricPort)
TABLE(zesGetPsu)
TABLE(zesGetLed)
TABLE(zesGetRas)
TABLE(zesGetDiagnostics)
